//! `#[locked]`: runs a function under one of Tenure's locks.
//!
//! ```
//! use tenure::Tenure;
//! use tenure_macros::locked;
//!
//! #[locked("order:{id}", wait = "3s")]
//! async fn ship(tenure: &Tenure, id: u64) -> Result<String, tenure::Error> {
//!     Ok(format!("order {id} is shipped"))
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), tenure::Error> {
//! let tenure = Tenure::connect("memory://").await?;
//! assert_eq!(ship(&tenure, 7).await?, "order 7 is shipped");
//! # Ok(()) }
//! ```
//!
//! See [`macro@locked`].

mod arguments;
mod expansion;
mod tokens;

use proc_macro::TokenStream;

/// Runs the function under a lock: acquires it before the body, and releases it after, also if the
/// body fails.
///
/// The first argument is the lock's name, as for `format!`: it may name parameters, or be followed by
/// values, as in `locked("order:{}", order.id)`. After that:
///
/// | setting | means | default |
/// |---|---|---|
/// | `client = self.tenure` | where the lock comes from: a `Tenure`, `Redlock`, `Locks` or `Owner`; for functions that are not async, one of `tenure::blocking` | the variable `tenure` |
/// | `wait = "3s"` | how long to wait for the lock; `"0s"` not at all | for ever |
/// | `ttl = "1m"`, `max_hold = "5m"`, `keep = "10s"` | as the methods of `Lock` | those of the client |
/// | `shared = true`, `fair = true` | a reader; strictly in order of arrival | no |
/// | `guard = held` | a name for the guard in the body, for its fence: `held.fence()` | none |
///
/// Times are texts such as `"250ms"`, `"3s"`, `"5m"`, `"1h"`, or any `Duration`.
///
/// # Errors
///
/// The function returns a `Result` whose error can be made from a `tenure::Error`, which is also what
/// it gets if the lock is busy for longer than `wait`, cannot be acquired, or is lost. The error of the
/// body is returned as it is, unless the lock was lost meanwhile.
///
/// # What happens if the lock is lost
///
/// An async body is dropped at its current await point, and the function returns an error of the kind
/// `Lost`. A body that is not async cannot be stopped: it runs to its end, and then the function
/// returns that error instead of its result. In both cases show the fence to whatever you write to:
///
/// ```
/// use tenure::blocking::Tenure;
/// use tenure_macros::locked;
///
/// struct Shop {
///     tenure: Tenure,
/// }
///
/// impl Shop {
///     #[locked("order:{}", order.0, client = self.tenure, wait = "3s", guard = held)]
///     fn ship(&self, order: &(u64, &str)) -> Result<String, Box<dyn std::error::Error>> {
///         Ok(format!("UPDATE orders … WHERE fence <= {}", held.fence()))
///     }
/// }
/// # let shop = Shop { tenure: Tenure::connect("memory://").unwrap() };
/// # assert!(shop.ship(&(7, "a")).unwrap().contains("fence <= "));
/// ```
///
/// A function that calls itself, or another one under the same name, waits for itself, unless `client`
/// is an `Owner`; threads are owners of their own, so functions that are not async may.
#[proc_macro_attribute]
pub fn locked(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let expanded =
        arguments::parse(arguments).and_then(|arguments| expansion::expand(arguments, function));
    expanded.unwrap_or_else(tokens::Refusal::into_tokens)
}
