//! The attribute of Tenure's tests, which `tenure_testkit::test` exports.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// A test, async or not, that is repeated if it failed while the machine stalled; see
/// `tenure_testkit::despite_stalls`. The arguments are those of `tokio::test`.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    match expand(arguments, function) {
        Ok(test) => test,
        Err(message) => rust(&format!("compile_error!({message:?});")),
    }
}

/// Puts the function into one of the same name, which calls it as often as necessary. Tokens are kept
/// as they are, because `$crate` of a macro cannot be written as text.
fn expand(arguments: TokenStream, function: TokenStream) -> Result<TokenStream, &'static str> {
    let tokens: Vec<TokenTree> = function.into_iter().collect();
    let keyword = tokens.iter().position(|token| is_word(token, "fn"));
    let keyword = keyword.ok_or("`test` belongs before a function")?;
    let name = tokens.get(keyword + 1).ok_or("a test has a name")?.clone();
    let is_async = keyword > 0 && is_word(&tokens[keyword - 1], "async");
    let (before, function) = tokens.split_at(keyword - usize::from(is_async));

    let mut body = match (is_async, arguments.is_empty()) {
        (true, true) => on_tokio(rust("flavor = \"current_thread\"")),
        (true, false) => on_tokio(arguments),
        (false, true) => TokenStream::new(),
        (false, false) => return Err("only an async test has arguments"),
    };
    body.extend(function.iter().cloned());
    body.extend(rust("::tenure_testkit::despite_stalls"));
    body.extend([group(Delimiter::Parenthesis, name.clone().into())]);

    let mut test = rust("#[test]");
    test.extend(before.iter().cloned());
    test.extend(rust("fn"));
    test.extend([
        name,
        group(Delimiter::Parenthesis, TokenStream::new()),
        group(Delimiter::Brace, body),
    ]);
    Ok(test)
}

fn on_tokio(arguments: TokenStream) -> TokenStream {
    let mut attribute = rust("::tokio::main");
    attribute.extend([group(Delimiter::Parenthesis, arguments)]);
    let mut tokens = rust("#");
    tokens.extend([group(Delimiter::Bracket, attribute)]);
    tokens
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(it) if it.to_string() == word)
}

fn group(delimiter: Delimiter, inner: TokenStream) -> TokenTree {
    Group::new(delimiter, inner).into()
}

fn rust(text: &str) -> TokenStream {
    text.parse().expect("this is Rust")
}
