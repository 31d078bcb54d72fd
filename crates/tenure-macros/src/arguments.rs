//! The arguments of the attribute: the name of the lock, and settings.

use proc_macro::{Span, TokenStream, TokenTree};

use crate::tokens::{Refusal, is_mark, is_word, rust, text_of};

const SETTINGS: &str = "`client`, `wait`, `ttl`, `max_hold`, `keep`, `shared`, `fair` and `guard`";

/// What the attribute says.
pub(crate) struct Arguments {
    /// The arguments of `format!` for the name.
    pub(crate) name: TokenStream,
    /// Where the lock comes from.
    pub(crate) client: TokenStream,
    /// The calls that set what the lock is like: `.wait(…)`.
    pub(crate) settings: TokenStream,
    /// The name of the guard in the body.
    pub(crate) guard: Option<TokenTree>,
}

pub(crate) fn parse(arguments: TokenStream) -> Result<Arguments, Refusal> {
    let mut parts = divided(arguments).into_iter();
    let name = parts.next().filter(|name| text_of(name).is_some());
    let Some(name) = name else {
        let message = "the first argument is the lock's name: `#[locked(\"order:{id}\")]`";
        return Err(Refusal::at(Span::call_site(), message));
    };
    let mut parsed = Arguments {
        name: name.into_iter().collect(),
        client: rust("tenure"),
        settings: TokenStream::new(),
        guard: None,
    };
    for part in parts {
        match &part[..] {
            [TokenTree::Ident(setting), equals, value @ ..]
                if is_mark(equals, '=') && !value.is_empty() && !is_mark(&value[0], '=') =>
            {
                parsed.set(&setting.to_string(), setting.span(), value)?;
            }
            // Another value for the name.
            _ => {
                parsed.name.extend(rust(","));
                parsed.name.extend(part);
            }
        }
    }
    Ok(parsed)
}

impl Arguments {
    fn set(&mut self, setting: &str, at: Span, value: &[TokenTree]) -> Result<(), Refusal> {
        let given = || value.iter().cloned().collect::<TokenStream>();
        match setting {
            "client" => self.client = given(),
            "guard" => match value {
                [name @ TokenTree::Ident(_)] => self.guard = Some(name.clone()),
                _ => return Err(Refusal::at(at, "`guard` is a name, as in `guard = held`")),
            },
            "wait" | "ttl" | "max_hold" | "keep" => {
                let length = match text_of(value) {
                    Some(text) => duration(&text).ok_or_else(|| {
                        let message = format!(
                            "`{setting} = \"{text}\"` is not a time: write for example \"250ms\", \
                             \"3s\", \"5m\" or \"1h\""
                        );
                        Refusal::at(value[0].span(), message)
                    })?,
                    None => given(),
                };
                self.call(setting, length);
            }
            "shared" | "fair" => match value {
                [yes] if is_word(yes, "true") => self.call(setting, TokenStream::new()),
                [no] if is_word(no, "false") => {}
                _ => {
                    let message = format!("`{setting}` is `true` or `false`");
                    return Err(Refusal::at(at, message));
                }
            },
            _ => {
                let message = format!("the setting `{setting}` is not one of {SETTINGS}");
                return Err(Refusal::at(at, message));
            }
        }
        Ok(())
    }

    fn call(&mut self, method: &str, argument: TokenStream) {
        self.settings.extend(rust(&format!(".{method}")));
        let parenthesis = proc_macro::Delimiter::Parenthesis;
        self.settings
            .extend([crate::tokens::group(parenthesis, argument)]);
    }
}

/// What commas separate. Those in brackets are inside of a group.
fn divided(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut parts = vec![Vec::new()];
    for token in tokens {
        match parts.last_mut() {
            Some(part) if !is_mark(&token, ',') => part.push(token),
            _ => parts.push(Vec::new()),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// A `Duration` for a time such as `3s`.
fn duration(text: &str) -> Option<TokenStream> {
    let digits = text.find(|it: char| !it.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let ms = number.checked_mul(ms)?;
    Some(rust(&format!(
        "::core::time::Duration::from_millis({ms}u64)"
    )))
}
