//! A sale, judged from outside: what buyers were told, what the books say, and whether both agree.
//!
//! Each client process writes what it asked and what it was told with a [`Recorder`]; afterwards the
//! test reads ledger and gate into [`Books`], and [`violations`] compares the two by the ten
//! [`Invariant`]s. All of it is plain data: the kit knows no engine, so it judges a naive shop by the
//! same rules.
//!
//! ```
//! use tenure_testkit::sale::{Account, Allowed, Answer, Books, Recorder, violations};
//!
//! let dir = tempfile::tempdir()?;
//! let recorder = Recorder::create(dir.path(), 1);
//! let asked = recorder.ask("sku-7", "ann", "first", 1);
//! // .. ask the shop here.
//! asked.told(Answer::Refused, "sold-out", None);
//!
//! let account = Account::load(dir.path());
//! assert_eq!(violations(&account, &Books::default(), Allowed::default()), []);
//! # Ok::<(), std::io::Error>(())
//! ```

mod account;
mod books;
mod demand;
mod invariant;
mod recorder;

pub use account::{Account, Answer, Deed, Kind};
pub use books::{Books, Counter, Item, Movement, Order, Posting, State};
pub use demand::{Demand, Profile, Wish};
pub use invariant::{Allowed, Breach, Invariant, violations};
pub use recorder::{Asked, Recorder};
