//! A certificate authority for one test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;

/// The files that a server and its clients need for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate authority that signed both sides.
    pub ca: PathBuf,
    /// The server's certificate, for `localhost` and `127.0.0.1`.
    pub cert: PathBuf,
    /// The server's key.
    pub key: PathBuf,
    /// A client's certificate.
    pub client_cert: PathBuf,
    /// The client's key.
    pub client_key: PathBuf,
}

impl TlsFiles {
    /// Creates a new authority and writes its files, all PEM, into `dir`.
    pub fn generate(dir: &Path) -> Self {
        let authority = Authority::new();
        let files = Self {
            ca: dir.join("ca.pem"),
            cert: dir.join("server.pem"),
            key: dir.join("server.key"),
            client_cert: dir.join("client.pem"),
            client_key: dir.join("client.key"),
        };
        write(&files.ca, &authority.pem);
        let names = ["localhost", "127.0.0.1"];
        authority.sign("server", &names, &files.cert, &files.key);
        authority.sign("client", &[], &files.client_cert, &files.client_key);
        files
    }
}

/// The certificates of a whole deployment; dropping this deletes the files.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) files: TlsFiles,
    _dir: TempDir,
}

impl Certificates {
    pub(crate) fn generate() -> Self {
        let dir = tempfile::Builder::new().prefix("tenure-tls-").tempdir();
        let dir = dir.expect("failed to create a directory for certificates");
        Self {
            files: TlsFiles::generate(dir.path()),
            _dir: dir,
        }
    }
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = params("tenure test authority", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("failed to generate a key");
        let certificate = params
            .self_signed(&key)
            .expect("failed to sign the authority's certificate");
        Self {
            issuer: Issuer::new(params, key),
            pem: certificate.pem(),
        }
    }

    fn sign(&self, common_name: &str, alternatives: &[&str], cert: &Path, key: &Path) {
        let key_pair = KeyPair::generate().expect("failed to generate a key");
        let certificate = params(common_name, alternatives)
            .signed_by(&key_pair, &self.issuer)
            .expect("failed to sign a certificate");
        write(cert, &certificate.pem());
        write(key, &key_pair.serialize_pem());
    }
}

fn params(common_name: &str, alternatives: &[&str]) -> CertificateParams {
    let alternatives: Vec<String> = alternatives.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(alternatives).expect("the names are valid");
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params
}

fn write(path: &Path, text: &str) {
    fs::write(path, text)
        .unwrap_or_else(|error| panic!("failed to write `{}`: {error}", path.display()));
}
