//! Places for connections: a number in all, a share for each address, and a reserve for health checks.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::settings::LimitSettings;

/// How many connections may be in the reserve at once.
pub(crate) const RESERVE: usize = 256;
/// How long a connection stays in the full reserve before it is closed for a newer one. A client that
/// has something to ask sends it at once.
const STAY_MIN: Duration = Duration::from_millis(100);

/// The places.
#[derive(Debug)]
pub(crate) struct Places {
    all: usize,
    of_each: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// One place, until it is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Places {
    /// The places of these settings, but no more than this.
    pub(crate) fn new(settings: &LimitSettings, at_most: usize) -> Arc<Self> {
        let all = settings.max_connections.clamp(1, at_most.max(1));
        let share = settings.max_connections_per_address;
        let of_each = share.unwrap_or(all - all / 4).max(1);
        let taken = Mutex::default();
        Arc::new(Self {
            all,
            of_each,
            taken,
        })
    }

    /// A place for a connection from this address, if one is free and its share is not used up.
    pub(crate) fn take(self: &Arc<Self>, from: IpAddr) -> Option<Place> {
        let address = network(from);
        let mut taken = self.taken();
        let of_address = taken.by_address.get(&address).copied().unwrap_or(0);
        if taken.all >= self.all || of_address >= self.of_each {
            return None;
        }
        taken.all += 1;
        taken.by_address.insert(address, of_address + 1);
        let places = Arc::clone(self);
        Some(Place { places, address })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all -= 1;
        if let Some(count) = taken.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

/// What counts as one address: a client with IPv6 has a whole network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// Connections without a place. They may ask for the health of the service and nothing else, so that a
/// supervisor does not restart a service because others keep it busy.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    /// Oldest first. Each is cancelled to close its connection.
    visits: VecDeque<(Instant, CancellationToken)>,
}

impl Reserve {
    /// Admits one more connection, if necessary in place of the oldest; it ends when the token is
    /// cancelled, and cancels the token when it ends.
    pub(crate) async fn enter(&mut self) -> CancellationToken {
        self.visits.retain(|(_, visit)| !visit.is_cancelled());
        if self.visits.len() >= RESERVE
            && let Some((since, oldest)) = self.visits.pop_front()
        {
            tokio::select! {
                () = sleep_until(since + STAY_MIN) => oldest.cancel(),
                () = oldest.cancelled() => {}
            }
        }
        let visit = CancellationToken::new();
        self.visits.push_back((Instant::now(), visit.clone()));
        visit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(all: usize, of_each: Option<usize>) -> Arc<Places> {
        let settings = LimitSettings {
            max_connections: all,
            max_connections_per_address: of_each,
            ..LimitSettings::default()
        };
        Places::new(&settings, 1_000)
    }

    fn v4(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn an_address_leaves_places_to_others() {
        let places = places(8, None);
        let mut first: Vec<_> = (0..8).map_while(|_| places.take(v4(1))).collect();
        assert_eq!(first.len(), 6);
        let second: Vec<_> = (0..8).map_while(|_| places.take(v4(2))).collect();
        assert_eq!(second.len(), 2);
        assert!(places.take(v4(3)).is_none(), "all are taken");
        first.pop();
        let third = places.take(v4(3));
        assert!(third.is_some());
        drop((first, second, third));
        let taken = places.taken();
        assert_eq!((taken.all, taken.by_address.len()), (0, 0));
    }

    #[test]
    fn a_network_of_a_client_is_one_address() {
        let places = places(8, Some(1));
        let taken = places.take("2001:db8::1".parse().unwrap());
        assert!(taken.is_some());
        assert!(places.take("2001:db8::ffff:2".parse().unwrap()).is_none());
        assert!(places.take("2001:db8:0:1::1".parse().unwrap()).is_some());
        let mapped = places.take("::ffff:10.0.0.1".parse().unwrap());
        assert!(mapped.is_some() && places.take(v4(1)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_the_reserve_makes_room_for_the_newest() {
        let mut reserve = Reserve::default();
        let mut visits = Vec::new();
        for _ in 0..RESERVE {
            visits.push(reserve.enter().await);
        }
        assert!(!visits[0].is_cancelled());
        let begun = Instant::now();
        let newest = reserve.enter().await;
        assert_eq!(begun.elapsed(), STAY_MIN);
        assert!(visits[0].is_cancelled());
        assert!(!visits[1].is_cancelled() && !newest.is_cancelled());
        // One that has ended by itself makes room at once.
        visits[7].cancel();
        reserve.enter().await;
        assert_eq!(begun.elapsed(), STAY_MIN);
        assert!(!visits[1].is_cancelled());
    }
}
