//! Where the token comes from.

use std::fs;
use std::path::Path;

use anyhow::Result;
use tenure_serve::Token;

use crate::exit::Failed;
use crate::server::variable;

/// Shorter ones can be guessed.
const BYTES_MIN: usize = 16;

/// The token of the file, or of the environment. Never from the command line, which other users can
/// see.
pub fn find(file: Option<&Path>) -> Result<Option<Token>> {
    let Some(path) = file else {
        return variable("TENURE_TOKEN")
            .map(|secret| check(&secret, "the variable TENURE_TOKEN"))
            .transpose();
    };
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| {
        Failed::config(format!("cannot read the token file `{shown}`: {error}"))
    })?;
    let first = text.lines().next().unwrap_or_default();
    check(first.trim(), &format!("the token file `{shown}`")).map(Some)
}

fn check(secret: &str, place: &str) -> Result<Token> {
    let is_plain = secret.bytes().all(|byte| byte.is_ascii_graphic());
    if secret.len() < BYTES_MIN || !is_plain {
        return Err(Failed::config(format!(
            "invalid token in {place}: it needs at least {BYTES_MIN} printable characters without \
             spaces; create one with `openssl rand -hex 32`"
        ))
        .into());
    }
    Ok(Token::new(secret))
}
