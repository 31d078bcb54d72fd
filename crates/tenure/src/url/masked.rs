//! URLs and errors about them without their secrets.

/// `url` with everything that could be a user or a password replaced by `***`, for display. The URL
/// need not be valid.
///
/// ```
/// let shown = tenure::masked_url("redis://:secret@127.0.0.1/");
/// assert_eq!(shown, "redis://***@127.0.0.1/");
/// ```
pub fn masked_url(url: &str) -> String {
    let (scheme, rest) = url
        .find("://")
        .map_or(("", url), |at| url.split_at(at + "://".len()));
    // The last `@`: a password may contain an unescaped one.
    let rest = match rest.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}"),
        None if is_user_without_host(scheme, rest) => {
            // What follows the user cannot be told from the password.
            let user = rest.split(':').next().filter(|user| !user.contains('['));
            let shown = user.map_or("***".to_owned(), |user| format!("{user}:***"));
            return format!("{scheme}{shown}");
        }
        None => rest.to_owned(),
    };
    let Some((path, query)) = rest.split_once('?') else {
        return format!("{scheme}{rest}");
    };
    let query: Vec<String> = query.split('&').map(masked_parameter).collect();
    format!("{scheme}{path}?{}", query.join("&"))
}

/// Whether this is perhaps a user and a password whose host was forgotten, as in `user:secret`: what
/// follows a host and a colon is a number.
fn is_user_without_host(scheme: &str, rest: &str) -> bool {
    let hosts = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    scheme != "memory://"
        && hosts.split(',').any(|host| {
            let bracketed = host.strip_prefix('[').and_then(|host| host.split_once(']'));
            let after = bracketed.map_or(host, |(_, after)| after);
            after
                .split_once(':')
                .is_some_and(|(_, port)| !is_port(port))
        })
}

/// `cause` without quotes that the masked URL does not show: an unescaped password tears the URL
/// apart, and any part of it may be a piece of the password.
pub(super) fn discreet(cause: &str, url: &str) -> String {
    const HINT: &str =
        "if a password contains `/`, `?`, `#` or `@`, write `%2F`, `%3F`, `%23`, `%40`";
    let masked = masked_url(url);
    if url.contains('`') && masked != url {
        return HINT.to_owned();
    }
    // The parser's message mentions `%` itself.
    let is_secret = |quote: &str| quote != "%" && url.contains(quote) && !masked.contains(quote);
    let parts = cause.split('`').enumerate();
    let shown: Vec<&str> = parts
        .map(|(at, part)| {
            if at % 2 == 1 && is_secret(part) {
                "***"
            } else {
                part
            }
        })
        .collect();
    let shown = shown.join("`");
    if shown == cause {
        shown
    } else {
        format!("{shown}; {HINT}")
    }
}

fn masked_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((key, _)) if key.to_ascii_lowercase().contains("pass") => format!("{key}=***"),
        _ => parameter.to_owned(),
    }
}
