//! Small helpers for tokens, and what is said when they are not what they should be.

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// Why the attribute cannot be used, and where.
pub(crate) struct Refusal {
    message: String,
    at: Span,
}

impl Refusal {
    pub(crate) fn at(span: Span, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            at: span,
        }
    }

    /// `compile_error!` with the message.
    pub(crate) fn into_tokens(self) -> TokenStream {
        let bang = Punct::new('!', Spacing::Alone);
        let message = TokenTree::from(Literal::string(&self.message));
        let mut tokens = [
            TokenTree::from(Ident::new("compile_error", self.at)),
            bang.into(),
            group(Delimiter::Parenthesis, message.into()),
            Punct::new(';', Spacing::Alone).into(),
        ];
        for token in &mut tokens {
            token.set_span(self.at);
        }
        tokens.into_iter().collect()
    }
}

pub(crate) fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(it) if it.to_string() == word)
}

pub(crate) fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(it) if it.as_char() == mark)
}

pub(crate) fn group(delimiter: Delimiter, inner: TokenStream) -> TokenTree {
    Group::new(delimiter, inner).into()
}

pub(crate) fn rust(text: &str) -> TokenStream {
    text.parse().expect("this is Rust")
}

/// The text of a string literal.
pub(crate) fn text_of(tokens: &[TokenTree]) -> Option<String> {
    let [TokenTree::Literal(literal)] = tokens else {
        return None;
    };
    let literal = literal.to_string();
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    Some(inner.to_owned())
}
