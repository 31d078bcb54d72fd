//! Checks a sale from outside: compares the answers that buyers got with the books.
//!
//! Each client process records its requests and their answers with a [`Recorder`]. Afterwards the test
//! reads ledger and gate into [`Books`], and [`violations`] checks both against the ten [`Invariant`]s.
//! All of it is plain data and independent of the engine, so a naive shop is checked by the same rules.
//!
//! ```
//! use tenure_testkit::sale::{Account, Allowed, Answer, Books, Recorder, violations};
//!
//! let dir = tempfile::tempdir()?;
//! let recorder = Recorder::create(dir.path(), 1);
//! let request = recorder.ask("sku-7", "ann", "first", 1);
//! // .. send the request here.
//! request.answered(Answer::Refused, "sold-out", None);
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

pub use account::{Account, Answer, Kind, Operation};
pub use books::{Books, Counter, Item, Movement, Order, Posting, State};
pub use demand::{Demand, Profile, Wish};
pub use invariant::{Allowed, Breach, Invariant, violations};
pub use recorder::{PendingOperation, Recorder};
