//! The shelves of an item: one, or as many as it is spread over, each in its own slot.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::asking::PackedRequest;
use super::keys::Keys;
use crate::gate::combiner::Line;
use crate::gate::spread::{Place, home};
use crate::item::SPREAD_MAX;
use crate::order::OrderId;

/// One shelf. The id of an entry in its stream differs from the order id: the number of an order
/// also encodes its shelf.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) item: String,
    pub(super) place: Place,
    pub(super) keys: Keys,
    /// The requests for this shelf.
    line: Line<PackedRequest>,
}

impl Shelf {
    /// The order of this entry of the queue.
    pub(super) fn order_of(&self, entry: &str) -> Option<OrderId> {
        let (epoch, number) = entry.split_once('-')?;
        let number = number.parse::<u64>().ok()?.checked_mul(self.place.of)?;
        let number = number.checked_add(self.place.nth)?;
        Some(OrderId::new(&self.item, epoch.parse().ok()?, number))
    }

    /// The queue entry of an order.
    pub(super) fn entry_of(&self, order: &OrderId) -> String {
        format!("{}-{}", order.epoch(), order.number() / self.place.of)
    }
}

/// Also compares the place: the first shelf has the same keys regardless of the others.
impl PartialEq for Shelf {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place && self.keys.gate == other.keys.gate
    }
}

impl Eq for Shelf {}

impl Hash for Shelf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.keys.gate.hash(state);
    }
}

impl AsRef<Line<PackedRequest>> for Shelf {
    fn as_ref(&self) -> &Line<PackedRequest> {
        &self.line
    }
}

/// All shelves of an item.
#[derive(Clone, Debug)]
pub(super) struct Shelves(Arc<[Arc<Shelf>]>);

impl Shelves {
    fn new(prefix: &str, item: &str, spread: u64) -> Self {
        let shelf = |nth| {
            let place = Place { nth, of: spread };
            Arc::new(Shelf {
                item: item.to_owned(),
                place,
                keys: Keys::of(prefix, item, place),
                line: Line::default(),
            })
        };
        Self((0..spread).map(shelf).collect())
    }

    pub(super) fn spread(&self) -> u64 {
        self.0.len() as u64
    }

    pub(super) fn is_spread(&self) -> bool {
        self.0.len() > 1
    }

    pub(super) fn all(&self) -> &[Arc<Shelf>] {
        &self.0
    }

    /// The one that is updated last, and has what belongs to no buyer.
    pub(super) fn first(&self) -> &Arc<Shelf> {
        &self.0[0]
    }

    pub(super) fn nth(&self, nth: u64) -> Option<&Arc<Shelf>> {
        self.0.get(usize::try_from(nth).ok()?)
    }

    pub(super) fn home(&self, buyer: &str) -> &Arc<Shelf> {
        self.nth(home(buyer, self.spread()))
            .unwrap_or_else(|| self.first())
    }

    /// Where the entry of an order would be.
    pub(super) fn of_order(&self, order: &OrderId) -> &Arc<Shelf> {
        self.nth(order.number() % self.spread())
            .unwrap_or_else(|| self.first())
    }
}

/// How many guesses are kept: anybody can ask for items that do not exist.
const GUESSES_MAX: usize = 1_000;

/// The known spreads of items. A spread does not change while an item exists; if one of these is
/// wrong, the scripts report it.
#[derive(Debug, Default)]
pub(super) struct Spreads {
    /// What all keys begin with.
    prefix: String,
    // Std mutexes, not async ones: they are never held across an await.
    known: Mutex<HashMap<String, Shelves>>,
    /// The only shelves of items whose spread is not known. Kept, because requests of concurrent
    /// buyers wait at their shelf.
    guessed: Mutex<HashMap<String, Shelves>>,
}

impl Spreads {
    pub(super) fn under(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn known(&self, item: &str) -> Option<Shelves> {
        self.all().get(item).cloned()
    }

    /// The known spread, or one by default.
    pub(super) fn known_or_one(&self, item: &str) -> Shelves {
        self.known(item).unwrap_or_else(|| self.guess(item))
    }

    fn guess(&self, item: &str) -> Shelves {
        let mut guessed = self.guesses();
        if let Some(shelves) = guessed.get(item) {
            return shelves.clone();
        }
        let shelves = Shelves::new(&self.prefix, item, 1);
        if guessed.len() >= GUESSES_MAX {
            guessed.clear();
        }
        guessed.insert(item.to_owned(), shelves.clone());
        shelves
    }

    pub(super) fn learn(&self, item: &str, spread: u64) -> Shelves {
        if let Some(known) = self.known(item).filter(|known| known.spread() == spread) {
            return known;
        }
        let shelves = Shelves::new(&self.prefix, item, spread.clamp(1, SPREAD_MAX));
        self.all().insert(item.to_owned(), shelves.clone());
        self.guesses().remove(item);
        shelves
    }

    pub(super) fn forget(&self, item: &str) {
        self.all().remove(item);
    }

    fn guesses(&self) -> MutexGuard<'_, HashMap<String, Shelves>> {
        self.guessed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Shelves>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
