//! One instance of `tenure serve`.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use hyper::http::header::{AUTHORIZATION, HOST};
use hyper::http::request::Builder;
use hyper::http::{HeaderValue, Request, Uri};
use tenure_serve::Token;

use super::connection::Connection;
use crate::exit::{Exit, Failed};

/// One instance of `tenure serve`.
#[derive(Clone, Debug)]
pub struct Instance {
    /// As given, without a trailing slash.
    pub url: String,
    pub addr: SocketAddr,
    host: HeaderValue,
    /// Prefix of every path.
    base: String,
    authorization: Option<HeaderValue>,
}

impl Instance {
    /// Parses a URL. Sends no request yet.
    pub async fn find(url: &str, token: Option<&Token>) -> Result<Self> {
        let refuse = |why: &str| {
            Failed::usage(format!(
                "cannot use `{url}`: {why}; write `http://host:port`"
            ))
        };
        let uri: Uri = url.parse().map_err(|_| refuse("invalid URL"))?;
        let authority = uri.authority().ok_or_else(|| refuse("it has no host"))?;
        if uri.scheme_str() != Some("http") {
            return Err(refuse("only plain http is supported").into());
        }
        if authority.as_str().contains('@') {
            return Err(
                Failed::usage("a user in the URL is not supported: use --token-file").into(),
            );
        }
        let port = uri.port_u16().unwrap_or(80);
        let name = authority.host().trim_matches(['[', ']']).to_owned();
        let found = tokio::net::lookup_host((name, port)).await;
        let addr = found.ok().and_then(|mut found| found.next());
        let missing = || Failed::new(Exit::Unavailable, format!("cannot find `{authority}`"));
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            addr: addr.ok_or_else(missing)?,
            host: HeaderValue::from_str(authority.as_str())?,
            base: uri.path().trim_end_matches('/').to_owned(),
            authorization: token.map(Token::header),
        })
    }

    /// A request for a path, with the headers that every request needs.
    pub fn request(&self, method: &str, path: &str) -> Builder {
        let request = Request::builder().method(method);
        let request = request.uri(format!("{}{path}", self.base));
        let request = request.header(HOST, &self.host);
        match &self.authorization {
            Some(authorization) => request.header(AUTHORIZATION, authorization),
            None => request,
        }
    }

    /// Sends one request over its own connection.
    pub async fn get(&self, path: &str) -> Result<(u16, serde_json::Value)> {
        let asked = async {
            let mut connection = Connection::open(self.addr).await?;
            let request = self.request("GET", path).body(String::new())?;
            connection.send(request).await
        };
        let asked = asked.await.map_err(|error| {
            Failed::new(
                Exit::Unavailable,
                format!("cannot connect to `{}`: {error}", self.url),
            )
        })?;
        let (status, body) = asked;
        let read = serde_json::from_slice(&body);
        let read = read.with_context(|| format!("`{}{path}` did not return JSON", self.url))?;
        Ok((status, read))
    }
}
