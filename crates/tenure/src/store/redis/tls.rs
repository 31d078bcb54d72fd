//! Connections over TLS, if this build has it.

#[cfg(feature = "tls")]
use std::fs;
#[cfg(feature = "tls")]
use std::path::Path;

use ::redis::ConnectionInfo;
#[cfg(feature = "tls")]
use ::redis::{ClientTlsConfig, TlsCertificates};

#[cfg(feature = "tls")]
use super::server_error;
use crate::error::{Error, ErrorKind};
use crate::store::Failure;
use crate::url::{RedisTarget, Tls};

/// The client crate's description of a server with TLS.
#[cfg(feature = "tls")]
pub(super) fn client(
    target: &RedisTarget,
    info: ConnectionInfo,
    tls: &Tls,
) -> Result<::redis::Client, Failure> {
    use_ring();
    let certificates = read_certificates(tls)?;
    let client = ::redis::Client::build_with_tls(info, certificates);
    client.map_err(|error| server_error::from_error(target, &error, None))
}

#[cfg(not(feature = "tls"))]
pub(super) fn client(
    target: &RedisTarget,
    _: ConnectionInfo,
    _: &Tls,
) -> Result<::redis::Client, Failure> {
    Err(Failure::refused(Error::new(
        ErrorKind::InvalidUrl,
        format!(
            "cannot connect to `{target}`: this program was built without TLS: enable the feature \
             `tls` of the crate `tenure`"
        ),
    )))
}

/// rustls panics when it has to choose between several providers that other crates brought in.
/// Choosing first prevents that; a choice that the program made earlier is kept.
#[cfg(feature = "tls")]
fn use_ring() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(feature = "tls")]
fn read_certificates(tls: &Tls) -> Result<TlsCertificates, Failure> {
    let root_cert = tls.ca.as_deref().map(read_file).transpose()?;
    let client_tls = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => Some(ClientTlsConfig {
            client_cert: read_file(certificate)?,
            client_key: read_file(key)?,
        }),
        _ => None,
    };
    Ok(TlsCertificates {
        client_tls,
        root_cert,
    })
}

#[cfg(feature = "tls")]
fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| {
        Failure::refused(
            Error::new(
                ErrorKind::InvalidUrl,
                format!("cannot read the file `{}` named in the URL", path.display()),
            )
            .caused_by(error),
        )
    })
}
