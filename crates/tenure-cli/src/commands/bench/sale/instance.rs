//! One `tenure serve` among those that are asked.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use hyper::http::header::{AUTHORIZATION, HOST};
use hyper::http::request::Builder;
use hyper::http::{HeaderValue, Request, Uri};
use tenure_serve::Token;

use super::connection::Connection;
use crate::exit::{Exit, Failed};

/// One `tenure serve`.
#[derive(Clone, Debug)]
pub struct Instance {
    /// As it was given, without a slash at the end.
    pub url: String,
    pub addr: SocketAddr,
    host: HeaderValue,
    /// In front of every path.
    base: String,
    authorization: Option<HeaderValue>,
}

impl Instance {
    /// Finds where a URL leads, and asks nothing yet.
    pub async fn find(url: &str, token: Option<&Token>) -> Result<Self> {
        let refuse = |why: &str| {
            Failed::usage(format!(
                "cannot ask `{url}`: {why}; write `http://host:port`"
            ))
        };
        let uri: Uri = url.parse().map_err(|_| refuse("that is no URL"))?;
        let authority = uri.authority().ok_or_else(|| refuse("it names no host"))?;
        if uri.scheme_str() != Some("http") {
            return Err(refuse("only HTTP without TLS is spoken here").into());
        }
        if authority.as_str().contains('@') {
            return Err(
                Failed::usage("a user does not belong into the URL: use --token-file").into(),
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

    /// A request for a path, with what every one needs.
    pub fn request(&self, method: &str, path: &str) -> Builder {
        let request = Request::builder().method(method);
        let request = request.uri(format!("{}{path}", self.base));
        let request = request.header(HOST, &self.host);
        match &self.authorization {
            Some(authorization) => request.header(AUTHORIZATION, authorization),
            None => request,
        }
    }

    /// Asks once, over a connection of its own.
    pub async fn get(&self, path: &str) -> Result<(u16, serde_json::Value)> {
        let asked = async {
            let mut connection = Connection::open(self.addr).await?;
            let request = self.request("GET", path).body(String::new())?;
            connection.send(request).await
        };
        let asked = asked.await.map_err(|error| {
            Failed::new(
                Exit::Unavailable,
                format!("cannot ask `{}`: {error}", self.url),
            )
        })?;
        let (status, body) = asked;
        let read = serde_json::from_slice(&body);
        let read = read.with_context(|| format!("`{}{path}` answers no JSON", self.url))?;
        Ok((status, read))
    }
}
