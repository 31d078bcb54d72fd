//! Certificates that are trusted, demanded, wrong or missing.

use std::time::Instant;

use tenure::{ErrorKind, Tenure};
use tenure_testkit::{RedisServer, TlsFiles};

use crate::stage::ms;
use crate::verdict::{check_refused, check_usable, check_within};

#[tenure_testkit::test]
async fn a_server_with_a_certificate_of_the_given_authority() {
    let server = RedisServer::builder().with_tls().start();
    let tenure = Tenure::connect(server.tls_url()).await.unwrap();
    check_usable(&tenure, "n").await;
    // The second connection, for messages and watched leases, is made the same way.
    let guard = tenure.lock("n").acquire().await.unwrap();
    let waiting = tokio::spawn(async move { tenure.lock("n").acquire().await });
    tokio::time::sleep(ms(300)).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    check_within(released, ms(2_000));
}

#[tenure_testkit::test]
async fn valkeys_is_tls_too() {
    let server = RedisServer::builder().with_tls().start();
    let url = server.tls_url().replace("rediss://", "valkeys://");
    check_usable(&Tenure::connect(url).await.unwrap(), "n").await;
}

#[tenure_testkit::test]
async fn a_server_that_demands_a_certificate_gets_one() {
    let server = RedisServer::builder().with_tls().auth_clients(true).start();
    let url = server.tls_url();
    check_usable(&Tenure::connect(&url).await.unwrap(), "n").await;
    let (without, _) = url.split_once("&cert=").unwrap();
    let begun = Instant::now();
    check_refused(
        Tenure::connect(without).await,
        ErrorKind::Denied,
        &["requires a client certificate", "`cert`"],
    );
    check_within(begun, ms(3_000));
}

/// Trying again would not help, so the error comes at once.
#[tenure_testkit::test]
async fn a_certificate_of_another_authority_is_refused() {
    let server = RedisServer::builder().with_tls().start();
    let strangers = RedisServer::builder().with_tls().start();
    let TlsFiles { ca, .. } = strangers.tls_files();
    let url = format!("rediss://{}/?ca={}", server.tls_addr(), ca.display());
    let begun = Instant::now();
    check_refused(
        Tenure::connect(url).await,
        ErrorKind::Denied,
        &["certificate", "`ca`"],
    );
    check_within(begun, ms(3_000));
}

/// Without `ca` the system's authorities decide, and none of them signed this one.
#[tenure_testkit::test]
async fn an_unknown_authority_is_refused_unless_insecure() {
    let server = RedisServer::builder().with_tls().start();
    let url = format!("rediss://{}/", server.tls_addr());
    check_refused(
        Tenure::connect(&url).await,
        ErrorKind::Denied,
        &["certificate"],
    );
    let tenure = Tenure::connect(format!("{url}#insecure")).await.unwrap();
    check_usable(&tenure, "n").await;
}

#[tenure_testkit::test]
async fn a_missing_file_is_named() {
    let server = RedisServer::builder().with_tls().start();
    let files = server.tls_files();
    let addr = server.tls_addr();
    let (cert, key) = (files.client_cert.display(), files.client_key.display());
    for url in [
        format!("rediss://{addr}/?ca=/nowhere/file.pem"),
        format!("rediss://{addr}/?cert=/nowhere/file.pem&key={key}"),
        format!("rediss://{addr}/?cert={cert}&key=/nowhere/file.pem"),
    ] {
        check_refused(
            Tenure::connect(url).await,
            ErrorKind::InvalidUrl,
            &["cannot read the file `/nowhere/file.pem`"],
        );
    }
}

/// A file that is there but is no certificate.
#[tenure_testkit::test]
async fn a_file_that_is_no_certificate_is_refused() {
    let server = RedisServer::builder().with_tls().start();
    let key = server.tls_files().key;
    let url = format!("rediss://{}/?ca={}", server.tls_addr(), key.display());
    let begun = Instant::now();
    let error = Tenure::connect(url).await.unwrap_err();
    assert_ne!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    check_within(begun, ms(3_000));
}

/// Plain words to a TLS port: the URL lacks an `s`.
#[tenure_testkit::test]
async fn a_tls_port_without_tls_is_unavailable_in_time() {
    let server = RedisServer::builder().with_tls().start();
    let url = format!("redis://{}/", server.tls_addr());
    let begun = Instant::now();
    let builder = Tenure::builder(url).unreachable_after(ms(500));
    check_refused(
        builder.connect().await,
        ErrorKind::Unavailable,
        &["redis://"],
    );
    check_within(begun, ms(5_000));
}

#[tenure_testkit::test]
async fn a_plain_port_with_tls_is_unavailable_in_time() {
    let server = RedisServer::start();
    let url = format!("rediss://{}/#insecure", server.addr());
    let begun = Instant::now();
    let builder = Tenure::builder(url).unreachable_after(ms(500));
    check_refused(
        builder.connect().await,
        ErrorKind::Unavailable,
        &["rediss://"],
    );
    check_within(begun, ms(5_000));
}
