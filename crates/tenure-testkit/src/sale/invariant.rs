//! The invariants of every sale.

mod answers;
mod orders;
mod quiet;
mod stock;

use std::collections::HashMap;
use std::fmt;

use super::account::Account;
use super::books::{Books, Order, State};
use crate::check::Violation;

/// The ten guarantees of a sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// Orders never hold more units than exist, at the end or at any commit.
    NotOversold = 1,
    /// Every confirmed order is exactly one order in the ledger, as requested; every order in the ledger
    /// belongs to one request.
    ConfirmedOnce = 2,
    /// Every accepted order reaches a final state in the ledger. It may be lost only if the server lost
    /// acknowledged writes, and then the buyer learns of it.
    NoneForgotten = 3,
    /// The same request id always gets the same order.
    SameAnswer = 4,
    /// No buyer exceeds the limit, at any commit.
    WithinLimit = 5,
    /// Units left, queued and sold add up to all units, and the gate knows which buyers have them.
    Conserved = 6,
    /// *Sold out* is answered only when the units are gone.
    SoldOutTrue = 7,
    /// Units of an order are released once, and only if the order has ended.
    ReleasedOnce = 8,
    /// Nothing is queued or pending, and no order died unexpectedly.
    Quiet = 9,
    /// No order leaves a final state.
    Monotone = 10,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::NotOversold,
        Self::ConfirmedOnce,
        Self::NoneForgotten,
        Self::SameAnswer,
        Self::WithinLimit,
        Self::Conserved,
        Self::SoldOutTrue,
        Self::ReleasedOnce,
        Self::Quiet,
        Self::Monotone,
    ];

    /// Its number and name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotOversold => "S1 not oversold",
            Self::ConfirmedOnce => "S2 confirmed once",
            Self::NoneForgotten => "S3 none forgotten",
            Self::SameAnswer => "S4 same answer",
            Self::WithinLimit => "S5 within limit",
            Self::Conserved => "S6 conserved",
            Self::SoldOutTrue => "S7 sold out true",
            Self::ReleasedOnce => "S8 released once",
            Self::Quiet => "S9 quiet",
            Self::Monotone => "S10 monotone",
        }
    }

    fn check(self, case: &Case<'_>) -> Vec<Violation> {
        match self {
            Self::NotOversold => stock::not_oversold(case),
            Self::ConfirmedOnce => orders::confirmed_once(case),
            Self::NoneForgotten => orders::none_forgotten(case),
            Self::SameAnswer => answers::same_answer(case),
            Self::WithinLimit => stock::within_limit(case),
            Self::Conserved => stock::conserved(case),
            Self::SoldOutTrue => answers::sold_out_true(case),
            Self::ReleasedOnce => stock::released_once(case),
            Self::Quiet => quiet::quiet(case),
            Self::Monotone => orders::monotone(case),
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Deviations that do not count as violations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The gate's server lost acknowledged writes: orders may be lost, and a request whose order was lost
    /// may get another.
    pub lossy: bool,
    /// The process that accepted orders may die with the server that had them: then nobody can count
    /// them, but a buyer who asks is told that the order is lost.
    pub uncounted: bool,
    /// The expected number of dead orders.
    pub dead: u64,
}

/// A broken invariant and the evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// The broken invariant.
    pub invariant: Invariant,
    /// The violation.
    pub violation: Violation,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.invariant, self.violation)
    }
}

/// All violations, in the order of the invariants. The books must have been read after all activity
/// ended.
pub fn violations(account: &Account, books: &Books, allowed: Allowed) -> Vec<Breach> {
    let case = Case::new(account, books, allowed);
    let mut breaches = Vec::new();
    for invariant in Invariant::ALL {
        let found = invariant.check(&case).into_iter();
        breaches.extend(found.map(|violation| Breach {
            invariant,
            violation,
        }));
    }
    breaches
}

/// The input of all invariants.
struct Case<'a> {
    account: &'a Account,
    books: &'a Books,
    allowed: Allowed,
    orders: HashMap<&'a str, &'a Order>,
    /// The last state that was reported of each order.
    last_reported: HashMap<&'a str, State>,
}

impl<'a> Case<'a> {
    fn new(account: &'a Account, books: &'a Books, allowed: Allowed) -> Self {
        let orders = books.orders.iter().map(|order| (order.id.as_str(), order));
        Self {
            account,
            books,
            allowed,
            orders: orders.collect(),
            last_reported: orders::last_reported(account),
        }
    }

    fn order(&self, id: &str) -> Option<&'a Order> {
        self.orders.get(id).copied()
    }

    /// Whether this order was lost or rejected because the gate's server lost writes, if that is allowed.
    fn is_lost(&self, id: &str) -> bool {
        let state = self.order(id).map(|order| order.state);
        self.allowed.lossy && matches!(state, Some(State::Lost | State::Rejected))
            || self.is_uncounted(id)
    }

    /// Whether this order was reported as lost although the books do not have it, if that is allowed.
    fn is_uncounted(&self, id: &str) -> bool {
        let is_reported = self.last_reported.get(id) == Some(&State::Lost);
        self.allowed.uncounted && is_reported && self.order(id).is_none()
    }
}

/// Hand-made sales for the tests of the invariants.
#[cfg(test)]
mod testing {
    use super::super::account::{Answer, Kind, Operation};
    use super::super::books::{Counter, Item, Movement, Posting};
    use super::*;

    /// A small correct sale of three units of `a`: `ann` has paid for one, `bob` had one and cancelled
    /// it, `cid` got that one and another and was refused a third.
    pub(super) struct Sale {
        pub(super) account: Account,
        pub(super) books: Books,
        pub(super) allowed: Allowed,
    }

    pub(super) fn good() -> Sale {
        let operations = vec![
            ask("ann", "1", 1, 10, Answer::Accepted, "", Some("a.1.1")),
            ask("ann", "1", 1, 20, Answer::Replayed, "", Some("a.1.1")),
            ask("bob", "1", 1, 30, Answer::Accepted, "", Some("a.1.2")),
            about(Kind::Look, "a.1.1", 40, Answer::State, "reserved"),
            about(Kind::Pay, "a.1.1", 50, Answer::Done, "paid"),
            about(Kind::Cancel, "a.1.2", 60, Answer::Done, "cancelled"),
            ask("cid", "1", 2, 70, Answer::Unknown, "", None),
            ask("cid", "1", 2, 80, Answer::Replayed, "", Some("a.1.3")),
            ask("cid", "2", 1, 90, Answer::Refused, "sold-out", None),
            about(Kind::Look, "a.1.3", 95, Answer::State, "reserved"),
        ];
        let orders = vec![
            order("a.1.1", "ann", 1, State::Paid),
            order("a.1.2", "bob", 1, State::Cancelled),
            order("a.1.3", "cid", 2, State::Reserved),
        ];
        let journal = vec![
            reserved("a.1.1", "ann", 1),
            reserved("a.1.2", "bob", 1),
            released("a.1.2", "bob", 1),
            reserved("a.1.3", "cid", 2),
        ];
        let item = Item {
            name: "a".into(),
            total: Some(3),
            sold: 3,
            limit: Some(2),
            counter: Counter::default(),
            quotas: Some([("ann".into(), 1), ("cid".into(), 2)].into()),
        };
        Sale {
            account: Account::new(operations),
            books: Books {
                items: vec![item],
                orders,
                journal,
            },
            allowed: Allowed::default(),
        }
    }

    impl Sale {
        /// Panics unless exactly these invariants are broken.
        #[track_caller]
        pub(super) fn breaks(&self, expected: &[Invariant]) {
            let found = violations(&self.account, &self.books, self.allowed);
            let mut broken: Vec<Invariant> = found.iter().map(|it| it.invariant).collect();
            broken.dedup();
            assert_eq!(broken, expected, "{found:#?}");
        }

        pub(super) fn operation(&mut self, operation: Operation) {
            self.account.operations.push(operation);
            self.account
                .operations
                .sort_by_key(|operation| operation.sent_ns);
        }
    }

    pub(super) fn ask(
        buyer: &str,
        request: &str,
        units: u64,
        at: u64,
        answer: Answer,
        word: &str,
        order: Option<&str>,
    ) -> Operation {
        Operation {
            client: 1,
            kind: Kind::Ask,
            item: "a".into(),
            buyer: buyer.into(),
            request: request.into(),
            units,
            order: order.map(ToOwned::to_owned),
            sent_ns: at,
            received_ns: Some(at + 5),
            answer,
            word: word.into(),
        }
    }

    pub(super) fn about(kind: Kind, order: &str, at: u64, answer: Answer, word: &str) -> Operation {
        Operation {
            kind,
            ..ask("", "", 0, at, answer, word, Some(order))
        }
    }

    pub(super) fn order(id: &str, buyer: &str, units: u64, state: State) -> Order {
        Order {
            id: id.into(),
            item: "a".into(),
            buyer: buyer.into(),
            request: "1".into(),
            units,
            state,
        }
    }

    pub(super) fn reserved(order: &str, buyer: &str, units: u64) -> Posting {
        posting(Movement::Reserved {
            order: order.into(),
            buyer: buyer.into(),
            units,
        })
    }

    pub(super) fn released(order: &str, buyer: &str, units: u64) -> Posting {
        posting(Movement::Released {
            order: order.into(),
            buyer: buyer.into(),
            units,
        })
    }

    pub(super) fn posting(movement: Movement) -> Posting {
        Posting {
            item: "a".into(),
            movement,
        }
    }

    #[test]
    fn a_good_sale_breaks_nothing() {
        good().breaks(&[]);
    }
}
