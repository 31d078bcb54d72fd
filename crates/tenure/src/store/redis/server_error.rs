//! Classifies errors of the server and the connection: whether the command ran, whether a retry
//! helps, and what to do.

use std::fmt::Display;
use std::io;

use super::wire::WireError;
use crate::error::{Error, ErrorKind};
use crate::store::{Failure, InFlight};

const NOT_TRUSTED: &str =
    "its certificate is not trusted: set `ca` to the CA certificate, as in `?ca=/ca.pem`";
const CERTIFICATE_DEMANDED: &str = "it requires a client certificate: set `cert` and `key`";
const CONNECTION_FAILED: &str = "the connection failed";

/// A server that is too old for the protocol.
pub(super) fn without_resp3(target: &dyn Display, reply: &str) -> Failure {
    let message = format!(
        "cannot connect to `{target}`: it does not support RESP3: Redis 7.0 or newer is needed"
    );
    Failure::refused(Error::new(ErrorKind::Unsupported, message).caused_by(reply.to_owned()))
}

/// An error reply of the server: the command did not run.
pub(super) fn from_reply(target: &dyn Display, code: &str, detail: &str) -> Failure {
    let (kind, transient, cause) = classify(code, detail);
    let message = format!("`{target}` refused: {cause}");
    Failure {
        error: Error::new(kind, message).caused_by(format!("{code} {detail}")),
        transient,
        in_flight: None,
    }
}

/// No reply in time. The command may have run, or may still run.
pub(super) fn no_reply(target: &dyn Display, in_flight: Option<InFlight>) -> Failure {
    Failure {
        error: Error::new(
            ErrorKind::Unavailable,
            format!("`{target}` did not answer in time: is the server overloaded or stopped?"),
        ),
        transient: true,
        in_flight,
    }
}

/// A connection that failed. `in_flight` is the request, if its outcome is unknown; without it, the
/// connection was being made.
pub(super) fn from_wire(
    target: &dyn Display,
    error: &WireError,
    in_flight: Option<InFlight>,
) -> Failure {
    let text = error.to_string();
    let (kind, transient, cause) = match error {
        // The kinds of rustls are hidden in texts.
        _ if text.contains("invalid peer certificate") => (ErrorKind::Denied, false, NOT_TRUSTED),
        _ if text.contains("CertificateRequired") => {
            (ErrorKind::Denied, false, CERTIFICATE_DEMANDED)
        }
        WireError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => (
            ErrorKind::Unavailable,
            true,
            "connection refused (is Redis running?)",
        ),
        // A working connection that breaks comes back.
        WireError::Protocol(_) if in_flight.is_none() => (
            ErrorKind::Protocol,
            false,
            "the server does not speak the Redis protocol: is the port correct?",
        ),
        _ if text.contains("failed to lookup address") => (
            ErrorKind::Unavailable,
            true,
            "the host name cannot be resolved: is it spelled correctly?",
        ),
        _ => (ErrorKind::Unavailable, true, CONNECTION_FAILED),
    };
    // A working connection that broke was not being connected.
    let failed = match cause {
        CONNECTION_FAILED => "reach",
        _ => "connect to",
    };
    let shown = target.to_string();
    let shown = shown.strip_suffix('/').unwrap_or(&shown);
    let error = Error::new(kind, format!("cannot {failed} `{shown}`: {cause}"));
    // Some of these texts have several lines.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Failure {
        // The source of a refused connection would only repeat the message.
        error: if text.contains("Connection refused") {
            error
        } else {
            error.caused_by(text)
        },
        transient,
        in_flight,
    }
}

/// Whether it was refused because of a certificate: then no password helps.
pub(super) fn is_certificate_error(failure: &Failure) -> bool {
    let text = failure.error.to_string();
    [NOT_TRUSTED, CERTIFICATE_DEMANDED]
        .iter()
        .any(|cause| text.ends_with(cause))
}

/// Whether the user may not run a command that a script uses: the texts of Redis 7.0, and of 7.2
/// and Valkey.
fn is_denied_in_script(detail: &str) -> bool {
    detail.contains("The user executing the script ") || detail.contains("ACL failure in script")
}

/// Whether an error reply came from the middle of a script: its earlier writes stay.
pub(super) fn ran_partly(reply: &str) -> bool {
    reply.contains(" script: ")
}

/// Whether a primary was demoted before its replicas could acknowledge.
fn is_deposed(code: &str, detail: &str) -> bool {
    code == "UNBLOCKED" || detail.starts_with("WAIT cannot be used with replica")
}

fn classify(code: &str, detail: &str) -> (ErrorKind, bool, String) {
    let say = |text: &str| text.to_owned();
    match code {
        _ if is_deposed(code, detail) => (
            ErrorKind::Unavailable,
            true,
            say("it was demoted to a replica while waiting for its replicas"),
        ),
        "NOAUTH" => (
            ErrorKind::Denied,
            false,
            say(
                "it requires a password: use `redis://:password@host` (the user goes before the \
                 `:`)",
            ),
        ),
        "WRONGPASS" => (ErrorKind::Denied, false, say("wrong user or password")),
        "NOPERM" => (
            ErrorKind::Denied,
            false,
            format!("{detail}: grant this user the permission"),
        ),
        "ERR" if is_denied_in_script(detail) => (
            ErrorKind::Denied,
            false,
            format!("{detail}: grant this user the permission"),
        ),
        "ERR" if detail.contains("DB index is out of range") => (
            ErrorKind::InvalidUrl,
            false,
            say("it has no database with that number"),
        ),
        "MOVED" | "ASK" => (
            ErrorKind::InvalidUrl,
            false,
            say("it is a cluster node, and the key is on another node: use `redis-cluster://`"),
        ),
        "ERR" if detail.contains("cluster support disabled") => (
            ErrorKind::InvalidUrl,
            false,
            say("it is not a cluster: use `redis://`"),
        ),
        "READONLY" => (
            ErrorKind::ReadOnly,
            false,
            say("it is a read-only replica: connect to its primary"),
        ),
        "OOM" => (
            ErrorKind::OutOfMemory,
            false,
            say("it has no memory left: raise `maxmemory` or delete keys"),
        ),
        "LOADING" => (
            ErrorKind::Unavailable,
            true,
            say("it is still loading its data"),
        ),
        "BUSY" => (
            ErrorKind::Unavailable,
            true,
            say("it is busy with a long script: `SCRIPT KILL` may end it"),
        ),
        "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "NOREPLICAS" | "MISCONF" => {
            (ErrorKind::Unavailable, true, format!("{code} {detail}"))
        }
        _ => (ErrorKind::Protocol, false, format!("{code} {detail}")),
    }
}

/// The error reply of the server.
pub(super) fn reply_of(failure: &Failure) -> Option<String> {
    std::error::Error::source(&failure.error).map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_inside_a_script_is_known_on_every_version() {
        for detail in [
            "The user executing the script can't run this command or subcommand script: 8b, on @u:3.",
            "The user executing the script can't access at least one of the keys script: 8b, on @u:3.",
            "ACL failure in script: User worker has no permissions to run the 'hset' command",
        ] {
            assert_eq!(classify("ERR", detail).0, ErrorKind::Denied, "{detail}");
        }
        assert_eq!(classify("ERR", "unknown command").0, ErrorKind::Protocol);
    }
}
