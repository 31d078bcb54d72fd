//! TLS, if this build has it.

#[cfg(not(feature = "tls"))]
use std::io;

#[cfg(not(feature = "tls"))]
use tokio::net::TcpStream;

#[cfg(not(feature = "tls"))]
use super::wire::Stream;
#[cfg(not(feature = "tls"))]
use crate::store::Failure;
#[cfg(not(feature = "tls"))]
use crate::url::{RedisTarget, Tls};

#[cfg(feature = "tls")]
pub(super) use self::rustls_config::{config, handshake};

/// Certificates and settings of a connection.
#[cfg(not(feature = "tls"))]
pub(super) enum Config {}

#[cfg(not(feature = "tls"))]
pub(super) fn config(target: &RedisTarget, _: &Tls) -> Result<Config, Failure> {
    use crate::error::{Error, ErrorKind};
    Err(Failure::refused(Error::new(
        ErrorKind::InvalidUrl,
        format!(
            "cannot connect to `{target}`: this program was built without TLS: enable the feature \
             `tls` of the crate `tenure`"
        ),
    )))
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "the same signature as with TLS")]
pub(super) async fn handshake(config: Config, _: &str, _: TcpStream) -> io::Result<Stream> {
    match config {}
}

#[cfg(feature = "tls")]
mod rustls_config {
    use std::fs;
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::{CryptoProvider, ring};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
    use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;

    use crate::error::{Error, ErrorKind};
    use crate::store::Failure;
    use crate::store::redis::wire::Stream;
    use crate::url::{RedisTarget, Tls};

    /// The settings for a server. Made for every connection, because certificates may have been
    /// renewed.
    pub(in crate::store::redis) fn config(
        target: &RedisTarget,
        tls: &Tls,
    ) -> Result<ClientConfig, Failure> {
        let invalid = |error: &dyn std::fmt::Display| {
            Failure::refused(
                Error::new(
                    ErrorKind::InvalidSetting,
                    format!("cannot connect to `{target}`: invalid connection settings"),
                )
                .caused_by(error.to_string()),
            )
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(&error))?;
        let verifier: Arc<dyn ServerCertVerifier> = if tls.insecure {
            Arc::new(AnyCertificate(provider))
        } else {
            let roots = match &tls.ca {
                Some(path) => read_roots(path)?,
                None => native_roots(),
            };
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| invalid(&error))?
        };
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match (&tls.certificate, &tls.key) {
            (Some(certificate), Some(key)) => builder
                .with_client_auth_cert(read_certificates(certificate)?, read_key(key)?)
                .map_err(|error| invalid(&error))?,
            _ => builder.with_no_client_auth(),
        };
        config.enable_sni = !tls.insecure;
        Ok(config)
    }

    /// Secures a connection.
    pub(in crate::store::redis) async fn handshake(
        config: ClientConfig,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<Stream> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, stream).await?;
        Ok(Stream::driven(stream))
    }

    /// The certificates that this machine trusts. One that cannot be read is left out.
    fn native_roots() -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    }

    fn read_roots(path: &Path) -> Result<RootCertStore, Failure> {
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(path)? {
            roots
                .add(certificate)
                .map_err(|error| unusable(path, &error))?;
        }
        Ok(roots)
    }

    fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
        let bytes = read_file(path)?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        let certificates = certificates.map_err(|error| unusable(path, &error))?;
        if certificates.is_empty() {
            return Err(unusable(path, &"it contains no certificate"));
        }
        Ok(certificates)
    }

    fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, Failure> {
        let bytes = read_file(path)?;
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| unusable(path, &error))
    }

    fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
        fs::read(path).map_err(|error| {
            let path = path.display();
            let message = format!("cannot read the file `{path}` named in the URL");
            Failure::refused(Error::new(ErrorKind::InvalidUrl, message).caused_by(error))
        })
    }

    fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
        let path = path.display();
        let message = format!("cannot use the file `{path}` named in the URL");
        let error = error.to_string();
        Failure::refused(Error::new(ErrorKind::InvalidUrl, message).caused_by(error))
    }

    /// Accepts every certificate: for `#insecure`.
    #[derive(Debug)]
    struct AnyCertificate(Arc<CryptoProvider>);

    impl ServerCertVerifier for AnyCertificate {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }
}
