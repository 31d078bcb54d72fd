//! The function with its body under the lock.

use proc_macro::{Delimiter, Span, TokenStream, TokenTree};

use crate::arguments::Arguments;
use crate::tokens::{Refusal, group, is_mark, is_word, rust};

/// Keeps everything before the body as it is. The body becomes the work of `Lock::try_with`, which
/// releases the lock, and tells if it was lost.
pub(crate) fn expand(arguments: Arguments, function: TokenStream) -> Result<TokenStream, Refusal> {
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    let keyword = tokens.iter().position(|token| is_word(token, "fn"));
    let keyword = keyword.ok_or_else(|| {
        Refusal::at(
            Span::call_site(),
            "`locked` belongs before a function with a body",
        )
    })?;
    let body = match tokens.pop() {
        Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => body,
        _ => {
            let message = "`locked` belongs before a function with a body";
            return Err(Refusal::at(tokens[keyword].span(), message));
        }
    };
    let before = &tokens[..keyword];
    if let Some(word) = before.iter().find(|token| is_word(token, "const")) {
        return Err(Refusal::at(
            word.span(),
            "a `const` function cannot acquire a lock",
        ));
    }
    let is_async = before.iter().any(|token| is_word(token, "async"));
    if !returns(&tokens[keyword..]) {
        let message = "a locked function returns a `Result`: the lock may be busy or lost";
        return Err(Refusal::at(tokens[keyword].span(), message));
    }
    tokens.push(group(
        Delimiter::Brace,
        locked_body(arguments, is_async, body.into()),
    ));
    Ok(tokens.into_iter().collect())
}

/// Whether there is an arrow.
fn returns(signature: &[TokenTree]) -> bool {
    let mut pairs = signature.windows(2);
    pairs.any(|pair| is_mark(&pair[0], '-') && is_mark(&pair[1], '>'))
}

/// `(client).lock(format!(…)).wait(…).try_with(async move |guard| { … }).await`.
fn locked_body(arguments: Arguments, is_async: bool, body: TokenTree) -> TokenStream {
    let Arguments {
        name,
        client,
        settings,
        guard,
    } = arguments;
    let mut name_text = rust("::std::format!");
    name_text.extend([group(Delimiter::Parenthesis, name)]);
    let mut work = rust(if is_async { "async move |" } else { "move |" });
    match guard {
        Some(guard) => work.extend([guard]),
        None => work.extend(rust("_")),
    }
    work.extend(rust("|"));
    work.extend([body]);

    // The name may borrow what the body then owns, so the lock comes first.
    let mut tokens = rust("let __tenure_lock = ");
    tokens.extend([group(Delimiter::Parenthesis, client)]);
    tokens.extend(rust(".lock"));
    tokens.extend([group(Delimiter::Parenthesis, name_text)]);
    tokens.extend(settings);
    tokens.extend(rust("; __tenure_lock.try_with"));
    tokens.extend([group(Delimiter::Parenthesis, work)]);
    if is_async {
        tokens.extend(rust(".await"));
    }
    tokens
}
