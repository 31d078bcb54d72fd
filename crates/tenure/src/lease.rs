//! What the store grants: an id, a fence and an expiry; and how long to rely on it.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::layout::Layout;
use crate::mode::Mode;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};

/// The shortest lease. Below it, a single slow round trip could outlast it.
pub const TTL_MIN: Duration = Duration::from_millis(100);
/// The longest lease: a crashed holder blocks others for this long.
pub const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How far two clocks may drift apart during one lease: one percent, plus two milliseconds for
/// rounding on both sides.
pub(crate) const DRIFT_DIVISOR: u32 = 100;
const DRIFT_MIN: Duration = Duration::from_millis(2);
/// How many digits at the end of a lease's number encode its ttl in ms, in layouts whose ids have
/// no other place for it.
const TTL_DIGITS: usize = 8;
/// Before the number of a lease that its client may keep. Marks are zeros: older clients read the same
/// number, and an id needs no escaping in a URL.
const KEEP_MARK: &str = "0";
/// Before the number of a lease whose client understands what an offer grants.
const OFFER_MARK: &str = "00";
/// Before the number of a candidate's lease: it leads only once its term is in the metadata. Older
/// clients take it for one that understands what an offer grants, which it ignores.
const CANDIDATE_MARK: &str = "000";
/// Before the number of a shared lease.
const SHARED_MARK: &str = "0000";
/// Before the number of a lease of permits.
const PERMIT_MARK: &str = "00000";
/// How the key of a lock begins while readers share it; then follows the fence of their phase.
const PHASE_PREFIX: &str = "tenure:shared:";
/// How the key of a semaphore begins; then follows its limit.
const SEMAPHORE_PREFIX: &str = "tenure:semaphore:";
/// What the key of a latch begins with.
const LATCH_PREFIX: &str = "tenure:latch:";

/// A fencing token: a number that increases with every grant of a lock.
///
/// Pass it to the resource that the lock protects, and let the resource refuse a number lower than
/// the highest it has seen: only that makes a holder that was paused for too long harmless. Fences
/// are below 2^53, so they survive JSON and Lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(u64);

impl Fence {
    /// A fence from a stored number, for example from a database row.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> u64 {
        fence.0
    }
}

/// The id of one lease. It is new for every grant, so that no other client can renew or release the
/// lease.
///
/// Tenure's ids look like `tenure:<client>:<number>:<ttl>`, or in Redisson's layout like
/// `<uuid of the client>:<number and ttl>`. The number of a lease that its client may
/// [keep](crate::Lock::keep) begins with a zero, that of a lease that can be granted by a message
/// with two zeros, that of a [candidate](crate::Election) with three, that of a
/// [shared](crate::Lock::shared) lease with four, that of a [permit](crate::Permit) with five. A lock
/// that readers share has `tenure:shared:<fence>` in place of a lease id, and a semaphore has
/// `tenure:semaphore:<limit>`. A lock taken by another library has whatever id that library wrote.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(Arc<str>);

impl LeaseId {
    /// An id from outside: the command line, a listing, another process.
    pub fn new(id: impl AsRef<str>) -> Self {
        Self(id.as_ref().into())
    }

    pub(crate) fn fresh(layout: Layout, client: &ClientId, number: u64, ttl: Duration) -> Self {
        Self::marked(layout, client, "", number, ttl)
    }

    /// The same for a lease that its client may keep. Others see that, and ask the client for it.
    /// Clients that know nothing of it read the same number.
    pub(crate) fn fresh_to_keep(
        layout: Layout,
        client: &ClientId,
        number: u64,
        ttl: Duration,
    ) -> Self {
        Self::marked(layout, client, KEEP_MARK, number, ttl)
    }

    /// The same for a lease whose client can take an offer as a grant. Clients that know nothing of
    /// it read the same number.
    pub(crate) fn fresh_to_be_offered(
        layout: Layout,
        client: &ClientId,
        number: u64,
        ttl: Duration,
    ) -> Self {
        Self::marked(layout, client, OFFER_MARK, number, ttl)
    }

    /// The same for a candidate in an election.
    pub(crate) fn fresh_of_candidate(
        layout: Layout,
        client: &ClientId,
        number: u64,
        ttl: Duration,
    ) -> Self {
        Self::marked(layout, client, CANDIDATE_MARK, number, ttl)
    }

    /// The same for a shared lease. Clients that know nothing of it read the same number, and offer it
    /// the lock as if it wanted it alone.
    pub(crate) fn fresh_shared(
        layout: Layout,
        client: &ClientId,
        number: u64,
        ttl: Duration,
    ) -> Self {
        Self::marked(layout, client, SHARED_MARK, number, ttl)
    }

    /// The same for permits of a semaphore.
    pub(crate) fn fresh_of_permit(
        layout: Layout,
        client: &ClientId,
        number: u64,
        ttl: Duration,
    ) -> Self {
        Self::marked(layout, client, PERMIT_MARK, number, ttl)
    }

    /// What a semaphore with this limit has in place of a lease id.
    pub(crate) fn of_semaphore(limit: u32) -> Self {
        Self(format!("{SEMAPHORE_PREFIX}{limit}").into())
    }

    /// What a latch has in place of a lease id.
    pub(crate) fn of_latch(need: u32, is_open: bool) -> Self {
        let open = if is_open { ":open" } else { "" };
        Self(format!("{LATCH_PREFIX}{need}{open}").into())
    }

    /// What a lock has in place of a lease id while readers share it in the phase with this fence.
    pub(crate) fn of_phase(fence: Fence) -> Self {
        Self(format!("{PHASE_PREFIX}{fence}").into())
    }

    fn marked(layout: Layout, client: &ClientId, mark: &str, number: u64, ttl: Duration) -> Self {
        let ttl_ms = ttl.as_millis();
        // On the stack: each lease has a new id.
        let mut id = IdText::default();
        // It never fails: the longest id is shorter than the text.
        let _ = match layout {
            Layout::Native => id
                .write_str("tenure:")
                .and_then(|()| id.write_hex(client.0))
                .and_then(|()| write!(id, ":{mark}{number}:{ttl_ms}")),
            Layout::Redisson => write!(
                id,
                "{}:{mark}{number}{ttl_ms:0TTL_DIGITS$}",
                client.as_uuid()
            ),
        };
        Self(id.as_str().into())
    }

    /// How the ids of a client begin in the native layout.
    pub(crate) fn prefix_of(client: ClientId) -> String {
        format!("tenure:{client}:")
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether Tenure created this id.
    pub fn is_tenure(&self) -> bool {
        self.parts().is_some()
    }

    /// The client that created this id, if it is one of Tenure's.
    pub fn client(&self) -> Option<ClientId> {
        self.parts().map(|(client, _)| client)
    }

    /// The client that may keep this lease although no caller of it holds the lock any more.
    pub(crate) fn keeper(&self) -> Option<ClientId> {
        let is_kept =
            |number: &str| number.starts_with(KEEP_MARK) && !number.starts_with(OFFER_MARK);
        let is_marked = self.number().is_some_and(is_kept);
        is_marked.then(|| self.client()).flatten()
    }

    /// How a lease with this id shares its lock.
    pub fn mode(&self) -> Mode {
        if self.is_phase() {
            return Mode::Shared;
        }
        if self.semaphore_limit().is_some() {
            return Mode::Permit;
        }
        match self.number().filter(|_| self.is_tenure()) {
            Some(number) if number.starts_with(PERMIT_MARK) => Mode::Permit,
            Some(number) if number.starts_with(SHARED_MARK) => Mode::Shared,
            _ => Mode::Exclusive,
        }
    }

    /// The limit of the semaphore that has this in place of a lease id.
    pub fn semaphore_limit(&self) -> Option<u32> {
        self.0.strip_prefix(SEMAPHORE_PREFIX)?.parse().ok()
    }

    /// How many parties the [latch](crate::Latch) needs that has this in place of a lease id, and whether
    /// it is open.
    pub fn latch(&self) -> Option<(u32, bool)> {
        let latch = self.0.strip_prefix(LATCH_PREFIX)?;
        let (need, is_open) = match latch.strip_suffix(":open") {
            Some(need) => (need, true),
            None => (latch, false),
        };
        Some((need.parse().ok()?, is_open))
    }

    /// Whether this is in place of the lease ids of several readers that share a lock.
    pub fn is_phase(&self) -> bool {
        self.phase().is_some()
    }

    /// The fence of the readers for whom this is in place of their lease ids.
    pub(crate) fn phase(&self) -> Option<Fence> {
        let fence = self.0.strip_prefix(PHASE_PREFIX)?;
        fence.parse().ok().map(Fence)
    }

    /// Whether it is the lease of a candidate in an election, elected or not.
    pub(crate) fn is_candidate(&self) -> bool {
        let is_marked =
            |number: &str| number.starts_with(CANDIDATE_MARK) && !number.starts_with(SHARED_MARK);
        self.is_tenure() && self.number().is_some_and(is_marked)
    }

    /// The number with its mark, in either layout.
    fn number(&self) -> Option<&str> {
        match self.0.strip_prefix("tenure:") {
            Some(rest) => rest.split(':').nth(1),
            None => self.0.split(':').nth(1),
        }
    }

    /// The lease duration, which determines how often waiters poll.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        self.parts().map(|(_, ttl)| ttl)
    }

    fn parts(&self) -> Option<(ClientId, Duration)> {
        self.native_parts().or_else(|| self.redisson_parts())
    }

    fn native_parts(&self) -> Option<(ClientId, Duration)> {
        let mut parts = self.0.strip_prefix("tenure:")?.split(':');
        let client = ClientId::parse(parts.next()?)?;
        parts.next()?.parse::<u64>().ok()?;
        let ttl = Duration::from_millis(parts.next()?.parse().ok()?);
        parts.next().is_none().then_some((client, ttl))
    }

    fn redisson_parts(&self) -> Option<(ClientId, Duration)> {
        let (client, number) = self.0.split_once(':')?;
        let client = ClientId::parse_uuid(client)?;
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let ttl = number.len().checked_sub(TTL_DIGITS).filter(|at| *at > 0)?;
        let ttl_ms = is_number.then(|| number[ttl..].parse().ok())??;
        Some((client, Duration::from_millis(ttl_ms)))
    }
}

/// The text of a fresh id, of 80 bytes at most.
struct IdText {
    bytes: [u8; 96],
    length: usize,
}

impl IdText {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    /// All 32 digits. By hand, because each lease has an id, and formatting takes longer.
    fn write_hex(&mut self, number: u128) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(number.to_be_bytes()) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 0xf)];
        }
        self.write_str(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
    }
}

impl Default for IdText {
    fn default() -> Self {
        Self {
            bytes: [0; 96],
            length: 0,
        }
    }
}

impl fmt::Write for IdText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let room = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The id of one client: a random UUID, so that no two processes share it. It has UUID version 8,
/// which distinguishes Tenure's clients from Redisson's, whose UUIDs have version 4.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientId(u128);

impl ClientId {
    pub(crate) fn fresh() -> Self {
        const VERSION: u128 = 0xf << 76;
        const VARIANT: u128 = 0b11 << 62;
        let random: u128 = rand::random();
        Self(random & !VERSION & !VARIANT | 8 << 76 | 0b10 << 62)
    }

    /// In the usual UUID notation.
    fn as_uuid(self) -> String {
        let hex = self.to_string();
        let groups = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        groups.join("-")
    }

    /// The client with this UUID, if it is one of Tenure's.
    fn parse_uuid(text: &str) -> Option<Self> {
        let is_right = |(at, byte): (usize, u8)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            14 => byte == b'8',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        };
        let is_ours = text.len() == 36 && text.bytes().enumerate().all(is_right);
        is_ours.then(|| Self::parse(&text.replace('-', "")))?
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex
            .then(|| u128::from_str_radix(text, 16).ok().map(Self))
            .flatten()
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A detached lease: [`Guard::detach`](crate::Guard::detach) returns it, and
/// [`Locks::adopt`](crate::Locks::adopt) turns it back into a guard.
///
/// It can be printed as one line of text and parsed back, so that it can be passed to another
/// process.
#[must_use = "the lock stays held until the lease expires, unless it is adopted or released"]
#[derive(Clone, Debug)]
pub struct Lease {
    pub(crate) name: LockName,
    pub(crate) id: LeaseId,
    pub(crate) fence: Fence,
    pub(crate) ttl: Duration,
    pub(crate) replicas: u32,
    /// Not part of the text: moments mean nothing to another machine.
    pub(crate) deadline: Option<Moment>,
}

impl Lease {
    /// A lease from its parts, for programs that store them in columns, in JSON or in variables.
    /// Its ttl is the one of the grant. For a lock that replicas confirm, add
    /// [`with_replicas`](Self::with_replicas).
    ///
    /// # Errors
    ///
    /// If the name is invalid, or if Tenure did not create the id.
    pub fn from_parts(name: impl AsRef<str>, id: LeaseId, fence: Fence) -> Result<Self, Error> {
        let Some(ttl) = id.ttl() else {
            let shown: String = id.as_str().chars().take(128).collect();
            let cause = "it is not a Tenure id: pass the id that was printed on acquire";
            return Err(Error::invalid_setting("the id of a lease", shown, cause));
        };
        Ok(Self {
            name: LockName::new(name)?,
            ttl: check_ttl("the ttl of a lease", ttl)?,
            id,
            fence,
            replicas: 0,
            deadline: None,
        })
    }

    /// The same lease, with the number of [replicas](crate::Lock::replicas) that must confirm it: each
    /// renewal, and the guard that adopts it.
    pub fn with_replicas(self, replicas: u32) -> Self {
        Self { replicas, ..self }
    }

    /// The name of the lock.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// The lease's id, which an administrator needs to end it.
    pub fn id(&self) -> &LeaseId {
        &self.id
    }

    /// The fence of the grant.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// How long it lasts without renewal.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How many replicas must confirm it, as its [lock](crate::Lock::replicas) demanded. A client that
    /// demands more for all its locks demands more for this one.
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Until when the lease can be relied on, as it was when it was detached. `None` for a lease that
    /// was read from text or built from its parts. [`Locks::renew`](crate::Locks::renew) returns a
    /// later one.
    pub fn deadline(&self) -> Option<Moment> {
        self.deadline
    }
}

/// Whether both are the same lease of the same grant; deadlines are not compared.
impl PartialEq for Lease {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |it: &Self| (it.fence, it.ttl, it.replicas);
        self.name == other.name && self.id == other.id && numbers(self) == numbers(other)
    }
}

impl Eq for Lease {}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            id,
            fence,
            ttl,
            replicas,
            deadline: _,
        } = self;
        write!(f, "{fence} {}", ttl.as_millis())?;
        if *replicas > 0 {
            // A reader that does not know it refuses the text. Without it, renewals would count that
            // no replica has.
            write!(f, "+{replicas}")?;
        }
        write!(f, " {id} {name}")
    }
}

impl FromStr for Lease {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = || {
            Error::new(
                ErrorKind::InvalidSetting,
                format!(
                    "cannot read `{text}` as a lease: expected `<fence> <ttl in ms>[+<replicas>] <id> \
                     <name>`, as a lease prints itself"
                ),
            )
        };
        let mut parts = text.splitn(4, ' ');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let fence = next().and_then(|part| part.parse().ok());
        let ttl_and_replicas = next().map(|part| part.split_once('+').unwrap_or((part, "0")));
        let (ttl_ms, replicas) = ttl_and_replicas.unwrap_or_default();
        let (ttl_ms, replicas) = (ttl_ms.parse().ok(), replicas.parse().ok());
        let (id, name) = (next(), next());
        let (Some(fence), Some(ttl_ms), Some(replicas)) = (fence, ttl_ms, replicas) else {
            return Err(malformed());
        };
        let (Some(id), Some(name)) = (id, name) else {
            return Err(malformed());
        };
        Ok(Self {
            name: LockName::new(name)?,
            id: LeaseId::new(id),
            fence: Fence(fence),
            ttl: check_ttl("the ttl of a lease", Duration::from_millis(ttl_ms))?,
            replicas,
            deadline: None,
        })
    }
}

/// The deadline of a grant: counted from before the request was sent, minus drift, so that the
/// holder stops relying on the lease before the store lets it expire.
pub(crate) fn believed_until(sent_at: Moment, ttl: Duration) -> Moment {
    if bug(Bug::BeliefOutlastsLease) || bug(Bug::BeliefWithoutDrift) {
        return sent_at + ttl * if bug(Bug::BeliefOutlastsLease) { 2 } else { 1 };
    }
    let drift = ttl / DRIFT_DIVISOR + DRIFT_MIN;
    sent_at + ttl.saturating_sub(drift)
}

/// Refuses a ttl that is out of range before anything is sent: Redis would treat 0 as *delete*, and
/// a huge number as *forever*.
pub(crate) fn check_ttl(setting: &str, ttl: Duration) -> Result<Duration, Error> {
    if (ttl < TTL_MIN || ttl > TTL_MAX) && !bug(Bug::TtlUnchecked) {
        let value = format!("{ttl:?}");
        return Err(Error::invalid_setting(
            setting,
            value,
            "it must be from 100 ms to 24 h",
        ));
    }
    Ok(ttl)
}

const _: () = assert!(
    TTL_MIN.as_millis() / (DRIFT_DIVISOR as u128) + DRIFT_MIN.as_millis() < TTL_MIN.as_millis() / 2,
    "the shortest lease must still be believed for more than half of its length"
);

const _: () = assert!(
    TTL_MAX.as_millis() < 100_000_000 && TTL_DIGITS == 8,
    "every ttl must have room at the end of a lease's number"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h12_belief_starts_before_the_request_was_sent() {
        let sent_at = Moment::from_nanos(1_000_000_000);
        let ttl = Duration::from_secs(10);
        let until = believed_until(sent_at, ttl);
        assert_eq!(until, sent_at + Duration::from_millis(9_898));
    }

    #[test]
    fn h20_h21_a_ttl_outside_its_limits_is_refused() {
        for ttl in [
            Duration::ZERO,
            Duration::from_millis(99),
            Duration::from_secs(86_401),
            Duration::MAX,
        ] {
            let error = check_ttl("ttl", ttl).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSetting);
        }
        assert!(check_ttl("ttl", TTL_MIN).is_ok());
        assert!(check_ttl("ttl", TTL_MAX).is_ok());
    }

    #[test]
    fn a_lease_survives_being_printed() {
        let client = ClientId::fresh();
        let lease = Lease {
            name: LockName::new("a name with spaces").unwrap(),
            id: LeaseId::fresh(Layout::Native, &client, 7, Duration::from_secs(30)),
            fence: Fence(42),
            ttl: Duration::from_secs(30),
            replicas: 0,
            deadline: None,
        };
        assert_eq!(lease.to_string().parse::<Lease>().unwrap(), lease);
        let confirmed = lease.clone().with_replicas(2);
        assert_ne!(confirmed, lease);
        assert_eq!(confirmed.to_string().parse::<Lease>().unwrap(), confirmed);
        assert!("1 30000+two an-id a-name".parse::<Lease>().is_err());
        assert_eq!(lease.id.client(), Some(client));
        assert_eq!(lease.id.ttl(), Some(Duration::from_secs(30)));
        assert!("1 2 three".parse::<Lease>().is_err());
        let again = Lease::from_parts("a name with spaces", lease.id.clone(), lease.fence);
        assert_eq!(again.unwrap(), lease);
        for (name, id) in [
            ("n", "mine"),
            ("", lease.id.as_str()),
            ("n", "tenure:3f2a9c1e7b1d8c2e9d3f444455556666:1:99"),
        ] {
            let refused = Lease::from_parts(name, LeaseId::new(id), lease.fence);
            assert!(refused.is_err(), "{name} {id}");
        }
    }

    #[test]
    fn foreign_ids_are_not_taken_for_ours() {
        for foreign in [
            "",
            "abc",
            "tenure:",
            "tenure:xyz:1:1",
            "9f1c-uuid:1",
            // Redisson's, whose version is 4.
            "3f2a9c1e-7b1d-4c2e-9d3f-444455556666:712345678",
            // Almost ours, except for the number, the dashes or the case.
            "3f2a9c1e-7b1d-8c2e-9d3f-444455556666:12345678",
            "3f2a9c1e-7b1d-8c2e-9d3f-444455556666:1é2345678",
            "3f2a9c1e7b1d8c2e9d3f444455556666:712345678",
            "3F2A9C1E-7B1D-8C2E-9D3F-444455556666:712345678",
        ] {
            assert!(!LeaseId::new(foreign).is_tenure(), "{foreign}");
        }
    }

    #[test]
    fn an_id_in_redissons_layout_tells_its_client_and_ttl() {
        let client = ClientId::fresh();
        for (number, ttl) in [
            (1, TTL_MIN),
            (7, Duration::from_secs(30)),
            (u64::MAX, TTL_MAX),
        ] {
            let id = LeaseId::fresh(Layout::Redisson, &client, number, ttl);
            let (uuid, digits) = id.as_str().split_once(':').unwrap();
            assert_eq!((uuid.len(), &uuid[14..15]), (36, "8"), "{id}");
            assert!(digits.starts_with(&number.to_string()), "{id}");
            assert_eq!((id.client(), id.ttl()), (Some(client), Some(ttl)), "{id}");
        }
    }

    #[test]
    fn an_id_tells_how_its_lease_shares_the_lock() {
        let (client, ttl) = (ClientId::fresh(), Duration::from_secs(30));
        for layout in [Layout::Native, Layout::Redisson] {
            let shared = LeaseId::fresh_shared(layout, &client, 7, ttl);
            assert_eq!((shared.mode(), shared.keeper()), (Mode::Shared, None));
            assert_eq!((shared.client(), shared.ttl()), (Some(client), Some(ttl)));
            for fresh in [
                LeaseId::fresh,
                LeaseId::fresh_to_keep,
                LeaseId::fresh_to_be_offered,
            ] {
                let id = fresh(layout, &client, 7, ttl);
                assert_eq!((id.mode(), id.is_phase()), (Mode::Exclusive, false), "{id}");
            }
        }
        let phase = LeaseId::of_phase(Fence(42));
        assert_eq!(phase.phase(), Some(Fence(42)));
        assert_eq!((phase.mode(), phase.is_tenure()), (Mode::Shared, false));
        for foreign in ["x:000", "tenure:shared:", "tenure:shared:x", "a:0001"] {
            assert_eq!(LeaseId::new(foreign).mode(), Mode::Exclusive, "{foreign}");
        }
    }

    #[test]
    fn only_a_candidates_id_is_marked_as_such() {
        let (client, ttl) = (ClientId::fresh(), Duration::from_secs(30));
        for layout in [Layout::Native, Layout::Redisson] {
            for (fresh, is_candidate) in [
                (LeaseId::fresh as fn(_, _, _, _) -> _, false),
                (LeaseId::fresh_to_keep, false),
                (LeaseId::fresh_to_be_offered, false),
                (LeaseId::fresh_of_candidate, true),
                (LeaseId::fresh_shared, false),
            ] {
                let id: LeaseId = fresh(layout, &client, 7, ttl);
                assert_eq!(id.is_candidate(), is_candidate, "{id}");
                assert_eq!((id.client(), id.ttl()), (Some(client), Some(ttl)), "{id}");
            }
        }
        assert!(!LeaseId::new("somebody:0001:30000").is_candidate());
    }

    /// People put them into URLs, shells and JSON.
    #[test]
    fn an_id_needs_no_escaping() {
        let (client, ttl) = (ClientId::fresh(), Duration::from_secs(30));
        for layout in [Layout::Native, Layout::Redisson] {
            for fresh in [
                LeaseId::fresh,
                LeaseId::fresh_to_keep,
                LeaseId::fresh_to_be_offered,
                LeaseId::fresh_shared,
                LeaseId::fresh_of_candidate,
            ] {
                let id = fresh(layout, &client, 7, ttl);
                let is_plain = |it: char| it.is_ascii_alphanumeric() || ":-".contains(it);
                assert!(id.as_str().chars().all(is_plain), "{id}");
            }
        }
    }
}
