//! Bugs on purpose, to show that the tests catch them. They exist only with the feature
//! `seeded-bugs`, which is for `make seeded` and never for users; without it `bug` is a constant.
//!
//! To add one: a line in the list, a hook where it breaks something (or a row in `IN_SCRIPTS`),
//! and a row in docs/testing.md, which names what catches it.

#[cfg(all(feature = "seeded-bugs", not(debug_assertions)))]
compile_error!("`seeded-bugs` breaks locks on purpose, for tests: it has no place in a release");

macro_rules! bugs {
    ($($(#[doc = $what:literal])+ $bug:ident = $name:literal,)*) => {
        /// What can be planted, one at a time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(
            not(any(test, feature = "seeded-bugs")),
            expect(dead_code, reason = "bugs of scripts are named in `IN_SCRIPTS` only")
        )]
        pub(crate) enum Bug {
            $($(#[doc = $what])+ $bug,)*
        }

        #[cfg(feature = "seeded-bugs")]
        const ALL: &[(Bug, &str)] = &[$((Bug::$bug, $name)),*];
    };
}

bugs! {
    /// a release deletes whatever lease is there
    ReleaseWithoutCompare = "release-without-compare",
    /// locks that are released together are not offered to their waiters
    BatchForgetsWaiters = "batch-forgets-waiters",
    /// callers whose requests travel together get each other's outcomes
    BatchMixesOutcomes = "batch-mixes-outcomes",
    /// a busy lock makes all that are asked for with it busy
    BatchSharesBusy = "batch-shares-busy",
    /// a request is sent although its caller has gone
    BatchSendsForNobody = "batch-sends-for-nobody",
    /// a lock that has a fence counter of its own gets its fence from the shared one
    OwnCounterIgnored = "own-counter-ignored",
    /// leases that are renewed together are renewed whichever lease holds the lock
    BatchRenewsAll = "batch-renews-all",
    /// locks that are released together are released whichever lease holds them
    BatchReleasesAll = "batch-releases-all",
    /// several locks are acquired although one of them is busy
    SeveralTakesSome = "several-takes-some",
    /// several locks are acquired in the order in which the caller names them
    SeveralInGivenOrder = "several-in-given-order",
    /// a caller that waits for several locks never holds some of them while it waits
    SeveralStarves = "several-starves",
    /// what was acquired of several locks is kept although one of them is busy
    SeveralKeepsPart = "several-keeps-part",
    /// only the first of several locks is released
    SeveralReleasesFirst = "several-releases-first",
    /// the guard of several locks only notices the loss of the first
    SeveralWatchesFirst = "several-watches-first",
    /// a client that keeps a lease does not hear that another wants it
    AskIgnored = "ask-ignored",
    /// a kept lease is used however old it is
    KeptTooLong = "kept-too-long",
    /// who uses a kept lease gets the fence of the holder before it
    KeptSameFence = "kept-same-fence",
    /// a kept lease is used although it is known to be gone
    KeptLossIgnored = "kept-loss-ignored",
    /// a shutdown leaves the leases that nobody holds
    KeptBeyondShutdown = "kept-beyond-shutdown",
    /// readers join a lease of their process although a caller before them waits to hold the lock alone
    WriterOvertaken = "writer-overtaken",
    /// a reader shares the lock although a waiter ahead wants it alone
    WriterStarved = "writer-starved",
    /// a shared lock ends with the lease that ends first
    SharedEndsWithFirst = "shared-ends-with-first",
    /// the renewal of a reader creates its lease
    SharedRenewalCreates = "shared-renewal-creates",
    /// readers that are admitted together include a waiter that wants the lock alone
    WriterAdmitted = "writer-admitted",
    /// a reader holds the lock alone although others share it
    UpgradeBesideReaders = "upgrade-beside-readers",
    /// a reader holds the lock alone although a waiter was there before
    UpgradePastWaiters = "upgrade-past-waiters",
    /// a lease can be shared although it is gone
    DowngradeWithoutCompare = "downgrade-without-compare",
    /// permits are granted however many are in use
    PermitLimitIgnored = "permit-limit-ignored",
    /// each client has the limit that it asks for
    PermitLimitNotCompared = "permit-limit-not-compared",
    /// a caller gets permits although others wait for more than are free
    PermitOvertaken = "permit-overtaken",
    /// a release of permits does not give their slots back
    PermitSlotsKept = "permit-slots-kept",
    /// the renewal of a lease of permits creates it
    PermitRenewalCreates = "permit-renewal-creates",
    /// a caller that wants its turn gets a lock that is free although others wait for it
    FairPassesWaiters = "fair-passes-waiters",
    /// callers of one process that want their turn share a place in the queue
    FairSharesAPlace = "fair-shares-a-place",
    /// a lock is handed off inside a process although a caller there waits for its turn
    FairHandedOff = "fair-handed-off",
    /// a caller that wants its turn waits for dead ones
    FairAwaitsTheDead = "fair-awaits-the-dead",
    /// a release compares and deletes in two round trips
    ReleaseInTwoSteps = "release-in-two-steps",
    /// the deadline counts from the reply
    DeadlineFromReply = "deadline-from-reply",
    /// belief lasts two ttls
    BeliefOutlastsLease = "belief-outlasts-lease",
    /// belief leaves no room for drift
    BeliefWithoutDrift = "belief-without-drift",
    /// a grant is taken up though it has ended before its reply came
    EndedGrantTakenUp = "ended-grant-taken-up",
    /// a renewal prolongs whatever lease is there
    RenewWithoutCompare = "renew-without-compare",
    /// a renewal creates the key again
    RenewRecreates = "renew-recreates",
    /// a renewal that is read after the deadline counts
    LateRenewalCounts = "late-renewal-counts",
    /// the watchdog goes on renewing what was released
    RenewalAfterRelease = "renewal-after-release",
    /// an attempt is repeated under a fresh id
    NaiveRetry = "naive-retry",
    /// an attempt does not carry its latest moment
    LateAttemptLands = "late-attempt-lands",
    /// an attempt is cancelled on another connection, and that is taken for good
    CancelOnOtherConnection = "cancel-on-other-connection",
    /// giving up leaves an attempt and a place in the queue behind
    GivingUpLeavesAll = "giving-up-leaves-all",
    /// a grant whose caller has gone is kept
    UnwantedGrantKept = "unwanted-grant-kept",
    /// a waiter subscribes after it has looked, and does not look again
    NoLookAfterListening = "no-look-after-listening",
    /// a waiter sleeps until it is told
    NoTimer = "no-timer",
    /// messages missed while the connection was gone are not made good
    MissedMessages = "missed-messages",
    /// a release tells the next in the queue nothing
    ReleaseTellsNobody = "release-tells-nobody",
    /// the last in the queue is offered the lock first
    LastServedFirst = "last-served-first",
    /// a waiter that has died is offered the lock as if it lived
    DeadWaitersOffered = "dead-waiters-offered",
    /// a waiter does not say that it lives
    WaitersSilent = "waiters-silent",
    /// a waiter that has lost its place does not ask for another
    LostPlaceIgnored = "lost-place-ignored",
    /// an offer is believed for as long as a whole lease
    OfferBelievedForTtl = "offer-believed-for-ttl",
    /// an offer counts from when it is heard, however late that is
    LateOfferTrusted = "late-offer-trusted",
    /// a lease that was taken as an offer is not renewed at once
    OfferNotConfirmed = "offer-not-confirmed",
    /// an offer lasts for ever
    OfferUnbounded = "offer-unbounded",
    /// a shutdown leaves its waiters waiting
    WaitersNotClosed = "waiters-not-closed",
    /// a grant does not increment the fence
    FenceNotIncremented = "fence-not-incremented",
    /// an offer that is taken up mints no fence
    OfferWithoutFence = "offer-without-fence",
    /// a lost fence counter begins at one again
    FenceRestarts = "fence-restarts",
    /// a promoted replica counts on from its older copy of a fence
    FenceFromOldCopy = "fence-from-old-copy",
    /// fences follow the client's idea of the server's clock, which may be ahead of it
    FenceAheadOfClock = "fence-ahead-of-clock",
    /// a fence counter ends though the clock has not passed its last fence
    CounterEndsEarly = "counter-ends-early",
    /// a nested acquire raises the fence
    FenceBumpedOnReentry = "fence-bumped-on-reentry",
    /// a nested acquire does not know that its owner holds the lock
    ReentryForgotten = "reentry-forgotten",
    /// a lost lease can be re-entered
    ReentryIntoLost = "reentry-into-lost",
    /// the release of an inner guard frees the lock
    InnerReleaseFrees = "inner-release-frees",
    /// a lease can be adopted twice
    AdoptWithoutCompare = "adopt-without-compare",
    /// a detached lease is renewed without the replicas that confirmed it
    DetachedWithoutReplicas = "detached-without-replicas",
    /// a lock has no end
    LockWithoutExpiry = "lock-without-expiry",
    /// a ttl of nothing is sent to the server
    TtlUnchecked = "ttl-unchecked",
    /// a dropped guard is not released
    DroppedGuardKept = "dropped-guard-kept",
    /// dropping a guard waits for the server
    DropBlocks = "drop-blocks",
    /// nobody tells the holder that its deadline has passed
    LossNotTold = "loss-not-told",
    /// a lease with little time left is handed on
    HandOffLate = "hand-off-late",
    /// a lock is handed on with the fence of its last holder
    HandOffSameFence = "hand-off-same-fence",
    /// a lock is handed on with a fence that the server's clock has not reached
    HandOffAheadOfClock = "hand-off-ahead-of-clock",
    /// a leader's lease is handed on in the process, and the store does not learn the new term
    ElectionHandedOff = "election-handed-off",
    /// a repeated attempt of a candidate mints another term
    TermMintedTwice = "term-minted-twice",
    /// an observer reports whatever a server says
    ObserverGoesBack = "observer-goes-back",
    /// a value is proclaimed although another leads
    ProclaimWithoutCompare = "proclaim-without-compare",
    /// an unhealthy leader goes on
    UnhealthyLeads = "unhealthy-leads",
    /// a leader that resigns in favour of a candidate is succeeded by the first in the queue
    SuccessorIgnored = "successor-ignored",
    /// a run begins although one has completed
    OnceCompletedBegins = "once-completed-begins",
    /// a run follows one that did not complete although its caller does not want that
    OnceAlwaysRetries = "once-always-retries",
    /// a run completes although another one has begun since
    OnceCompletesLate = "once-completes-late",
    /// a run is remembered for as long as its lease only
    OnceForgetsEarly = "once-forgets-early",
    /// a run whose caller has gone counts as begun
    OnceUnclaimedBegan = "once-unclaimed-began",
    /// arrivals at a latch are counted instead of parties
    LatchCountsArrivals = "latch-counts-arrivals",
    /// a latch opens for one party too few
    LatchOpensEarly = "latch-opens-early",
    /// a latch waits for as many parties as its last caller says
    LatchNeedNotCompared = "latch-need-not-compared",
    /// a latch that is open is closed by a party that arrives late
    LatchCloses = "latch-closes",
    /// a waiter of a latch is not told that it opens
    LatchNotTold = "latch-not-told",
    /// a lost lease is handed on
    HandOffLost = "hand-off-lost",
    /// a lock is handed on for as long as somebody waits
    HandOffUnbounded = "hand-off-unbounded",
    /// a lock is handed on to one who wants another lease
    HandOffAnyWish = "hand-off-any-wish",
    /// a lease that was handed on is no longer renewed
    HandOffNotRenewed = "hand-off-not-renewed",
    /// the last in line leaves the line's place in the queue behind
    PlaceNotLeft = "place-not-left",
    /// a lock that has moved to another node is not followed
    MovedNotFollowed = "moved-not-followed",
    /// a lock on its way to another node is asked for as if it were there
    AskWithoutAsking = "ask-without-asking",
    /// a channel whose slot has moved is not heard elsewhere
    SunsubscribeIgnored = "sunsubscribe-ignored",
    /// waiters listen in a shard, and are told everywhere else
    ShardNotTold = "shard-not-told",
    /// a node that hangs keeps the leases on others from being renewed
    PlacesRenewedTogether = "places-renewed-together",
    /// a client stays with the master that was deposed
    StaysWithOldMaster = "stays-with-old-master",
    /// replicas are asked on another connection than the one that wrote
    WaitOnOtherConnection = "wait-on-other-connection",
    /// one replica is enough, however many are asked for
    WaitOneIsEnough = "wait-one-is-enough",
    /// a master that has just begun to reign gives new locks
    ReignIgnored = "reign-ignored",
    /// a grant does not compare which master gives it
    MasterNotCompared = "master-not-compared",
    /// a key beside the lock lacks the client's prefix
    NeighbourWithoutPrefix = "neighbour-without-prefix",
    /// a release tells the next waiter on a channel that lacks the client's prefix
    ChannelWithoutPrefix = "channel-without-prefix",
    /// errors quote the password
    PasswordInError = "password-in-error",
    /// a majority of the nodes that could be asked decides, not of all
    RedlockMajorityOfAsked = "redlock-majority-of-asked",
    /// a node that has just started and may have forgotten votes
    RedlockYoungNodeVotes = "redlock-young-node-votes",
    /// a node rests by what it says of its own age alone
    RedlockRestByUptime = "redlock-rest-by-uptime",
    /// a client does not look at what others know of a node's age
    RedlockSightingsIgnored = "redlock-sightings-ignored",
    /// a node rests for the client's own longest ttl, however short
    RedlockRestByOwnTtl = "redlock-rest-by-own-ttl",
    /// a vote that was not heard is forgotten when its lease has ended
    RedlockStrayVoteLeft = "redlock-stray-vote-left",
    /// a server is taken for as old as it says, which may be a second too much
    AgeRoundedUp = "age-rounded-up",
    /// what was got in vain stays on its nodes
    RedlockMinorityKept = "redlock-minority-kept",
    /// callers whose votes travel together get each other's votes
    RedlockBatchMixesVotes = "redlock-batch-mixes-votes",
    /// a vote is sent although nobody wants it any more
    RedlockBatchVotesForNobody = "redlock-batch-votes-for-nobody",
    /// leases that are released together are released whichever lease has the lock
    RedlockBatchReleasesAll = "redlock-batch-releases-all",
    /// a waiter of a Redlock sleeps as if those ahead of it could not hang
    RedlockWaiterSleeps = "redlock-waiter-sleeps",
    /// a node accepts a block that is not above its fence
    RedlockStaleBallotAccepted = "redlock-stale-ballot-accepted",
    /// a lease counts from the majority's answer, not from the question
    RedlockValidityFromAnswer = "redlock-validity-from-answer",
    /// a renewal counts if a single node confirms it
    RedlockRenewedByOne = "redlock-renewed-by-one",
    /// a node is repaired over a greater fence
    RedlockRepairIgnoresFence = "redlock-repair-ignores-fence",
    /// a node is repaired without what was said with the lease, such as who leads
    RedlockRepairWithoutMetadata = "redlock-repair-without-metadata",
}

/// Bugs that are a change of a script: which file, what stands there, and what instead.
#[cfg(any(test, feature = "seeded-bugs"))]
pub(crate) const IN_SCRIPTS: &[(Bug, &str, &str, &str)] = &[
    (
        Bug::ReleaseWithoutCompare,
        "native/release.lua",
        "if found ~= ARGV[1] then",
        "if not found then",
    ),
    (
        Bug::ChannelWithoutPrefix,
        "native/release.lua",
        "local wake = string.gsub(queue, 'tenure:queue', 'tenure:wake', 1)",
        "local wake = string.gsub(queue, '^.-tenure:queue', 'tenure:wake', 1)",
    ),
    (
        Bug::FairPassesWaiters,
        "native/fair_acquire.lua",
        "if found and found ~= lease or waiter and waiter ~= lease then",
        "if found and found ~= lease then",
    ),
    (
        Bug::FairAwaitsTheDead,
        "native/fair_acquire.lua",
        "if tonumber(lives_until) < now_ms then",
        "if false then",
    ),
    (
        Bug::PermitLimitIgnored,
        "native/permit_acquire.lua",
        "is_next and count <= limit - slots_in_use()",
        "is_next",
    ),
    (
        Bug::PermitLimitNotCompared,
        "native/permit_acquire.lua",
        "if found and limit_of(found) ~= limit then",
        "if false then",
    ),
    (
        Bug::PermitOvertaken,
        "native/permit_acquire.lua",
        "local is_next = overtakes or #still == 0 or still[1] == lease",
        "local is_next = true",
    ),
    (
        Bug::PermitSlotsKept,
        "native/permit_release.lua",
        "local was_held = give_back(id)",
        "local was_held = redis.call('ZREM', permits, id) == 1",
    ),
    (
        Bug::PermitRenewalCreates,
        "native/permit_renew.lua",
        "if not ends or tonumber(ends) <= now then",
        "if false then",
    ),
    (
        Bug::OnceCompletedBegins,
        "native/once.lua",
        "  if is_completed then\n    return {'completed', last}\n  elseif last and",
        "  if false then\n    return {'completed', last}\n  elseif not is_completed and last and",
    ),
    (
        Bug::OnceAlwaysRetries,
        "native/once.lua",
        "last ~= run and not retry then",
        "last ~= run and false then",
    ),
    (
        Bug::OnceCompletesLate,
        "native/once.lua",
        "if last and last ~= run then",
        "if false then",
    ),
    (
        Bug::OnceForgetsEarly,
        "native/once.lua",
        "'PX', remember)",
        "'PX', math.max(redis.call('PTTL', KEYS[1]), 1))",
    ),
    (
        Bug::LatchCountsArrivals,
        "native/latch.lua",
        "redis.call('SADD', KEYS[2], party)",
        "redis.call('SADD', KEYS[2], party .. redis.call('SCARD', KEYS[2]))",
    ),
    (
        Bug::LatchOpensEarly,
        "native/latch.lua",
        "if arrived < need then",
        "if arrived < need - 1 then",
    ),
    (
        Bug::LatchNeedNotCompared,
        "native/latch.lua",
        "elseif tonumber(known) ~= need then",
        "elseif false then",
    ),
    (
        Bug::LatchCloses,
        "native/latch.lua",
        "elseif open == ':open' then",
        "elseif open == ':open' and party == '' then",
    ),
    (
        Bug::UpgradeBesideReaders,
        "native/upgrade.lua",
        "if others > 0 or waiters > 0 then",
        "if waiters > 0 then",
    ),
    (
        Bug::UpgradePastWaiters,
        "native/upgrade.lua",
        "if others > 0 or waiters > 0 then",
        "if others > 0 then",
    ),
    (
        Bug::DowngradeWithoutCompare,
        "native/downgrade.lua",
        "if found ~= ARGV[1] then",
        "if false then",
    ),
    (
        Bug::WriterStarved,
        "native/shared_acquire.lua",
        "if writer and writer ~= lease then",
        "if false then",
    ),
    (
        Bug::SharedEndsWithFirst,
        "native/shared_acquire.lua",
        "'ZRANGE', readers, -1, -1",
        "'ZRANGE', readers, 0, 0",
    ),
    (
        Bug::SharedRenewalCreates,
        "native/shared_renew.lua",
        "if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then",
        "if false then",
    ),
    (
        Bug::WriterAdmitted,
        "native/shared_acquire.lua",
        "if waiter == before or not is_reader(waiter) then",
        "if waiter == before then",
    ),
    (
        Bug::BatchReleasesAll,
        "native/release_all.lua",
        "found[i] ~= ARGV[i]",
        "not found[i]",
    ),
    (
        Bug::BatchForgetsWaiters,
        "native/release_all.lua",
        "2 * count)) > 0",
        "2 * count)) < 0",
    ),
    (
        Bug::SeveralTakesSome,
        "native/acquire_several.lua",
        "if found[i] and found[i] ~= ARGV[4 + i] then",
        "if i == 1 and found[i] and found[i] ~= ARGV[4 + i] then",
    ),
    (
        Bug::BatchRenewsAll,
        "native/renew_all.lua",
        "found[i] == ARGV[i]",
        "found[i]",
    ),
    (
        Bug::RenewWithoutCompare,
        "native/renew.lua",
        "if found ~= ARGV[1] then",
        "if not found then",
    ),
    (
        Bug::RenewRecreates,
        "native/renew.lua",
        "if found ~= ARGV[1] then",
        "if found and found ~= ARGV[1] then",
    ),
    (
        Bug::RenewRecreates,
        "native/renew.lua",
        "redis.call('PEXPIRE', KEYS[1], ttl)",
        "redis.call('SET', KEYS[1], ARGV[1], 'PX', ttl)",
    ),
    (
        Bug::LateAttemptLands,
        "native/acquire.lua",
        "if now > latest then",
        "if false then",
    ),
    (
        Bug::OfferUnbounded,
        "native/release.lua",
        "waiter, 'PXAT', now_ms + offer_ms)",
        "waiter)",
    ),
    (
        Bug::OfferUnbounded,
        "native/release.lua",
        "redis.call('PEXPIREAT', KEYS[1], now_ms + 500, 'LT')",
        "",
    ),
    (
        Bug::DeadWaitersOffered,
        "native/release.lua",
        "if tonumber(lives_until) < now_ms then",
        "if false then",
    ),
    (
        Bug::ReleaseTellsNobody,
        "native/release.lua",
        "redis.pcall('PUBLISH', wake, message)",
        "nil",
    ),
    (
        Bug::LastServedFirst,
        "native/release.lua",
        "local waiter = redis.pcall('ZRANGE', queue, 0, 0)",
        "local waiter = redis.pcall('ZRANGE', queue, -1, -1)",
    ),
    (
        Bug::AdoptWithoutCompare,
        "native/adopt.lua",
        "if found ~= ARGV[1] and found ~= ARGV[2] then",
        "if not found then",
    ),
    (
        Bug::FenceNotIncremented,
        "native/acquire.lua",
        "minted = to_fence(id)",
        "minted = math.floor(to_fence(id) / 60000000) * 60000000",
    ),
    (
        Bug::OfferWithoutFence,
        "native/acquire.lua",
        "minted = to_fence(id)",
        "minted = to_fence(id) if not was_free then minted = math.floor(minted / 60000000) * 60000000 end",
    ),
    (
        Bug::OfferWithoutFence,
        "native/release.lua",
        "minted = to_fence(id)",
        "minted = math.floor(to_fence(id) / 60000000) * 60000000",
    ),
    (
        Bug::FenceRestarts,
        "native/acquire.lua",
        "'NOMKSTREAM', 'MAXLEN', '0', '*', 'f', '')",
        "'MAXLEN', '0', '0-*', 'f', '')",
    ),
    (
        Bug::FenceFromOldCopy,
        "native/acquire.lua",
        "'NOMKSTREAM', 'MAXLEN', '0', '*', 'f', '')",
        "'NOMKSTREAM', 'MAXLEN', '0', redis.call('EXISTS', KEYS[2]) == 1 and \
         string.match(redis.call('XINFO', 'STREAM', KEYS[2])[8], '^%d+') .. '-*' or '*', 'f', '')",
    ),
    (
        Bug::FenceAheadOfClock,
        "native/acquire.lua",
        "'NOMKSTREAM', 'MAXLEN', '0', '*', 'f', '')",
        "'MAXLEN', '0', string.format('%.0f-*', math.floor(latest / 1000)), 'f', '')",
    ),
    (
        Bug::CounterEndsEarly,
        "native/acquire.lua",
        "string.format('%.0f', math.floor(last / 1000) + 86400000)",
        "string.format('%.0f', math.floor(now / 1000) + 2000)",
    ),
    (
        Bug::TermMintedTwice,
        "native/acquire.lua",
        "if known_term then",
        "if false then",
    ),
    (
        Bug::ProclaimWithoutCompare,
        "native/proclaim.lua",
        "if found ~= ARGV[1] then",
        "if false then",
    ),
    (
        Bug::SuccessorIgnored,
        "native/release.lua",
        "waiter = named",
        "waiter = waiter",
    ),
    (
        Bug::MasterNotCompared,
        "native/acquire.lua",
        "if found ~= primary then",
        "if false then",
    ),
    (
        Bug::LockWithoutExpiry,
        "native/acquire.lua",
        "'NX', 'PX', ARGV[2])",
        "'NX')",
    ),
    (
        Bug::RedlockStaleBallotAccepted,
        "redlock/vote.lua",
        "if first > floor and not far and",
        "if not far and",
    ),
    (
        Bug::RedlockStaleBallotAccepted,
        "redlock/vote.lua",
        "if first <= floor then",
        "if false then",
    ),
    (
        Bug::RedlockStaleBallotAccepted,
        "redlock/vote_all.lua",
        "if first > floor and not far and",
        "if not far and",
    ),
    (
        Bug::RedlockStaleBallotAccepted,
        "redlock/vote_all.lua",
        "if first <= floor then",
        "if false then",
    ),
    (
        Bug::RedlockBatchReleasesAll,
        "redlock/release_all.lua",
        "elseif found and found == ARGV[at] then",
        "elseif found then",
    ),
    (
        Bug::RedlockRepairIgnoresFence,
        "redlock/repair.lua",
        "if stored and stored > last then",
        "if false then",
    ),
];

/// Whether this bug is planted.
#[cfg(feature = "seeded-bugs")]
pub(crate) fn bug(bug: Bug) -> bool {
    planted::BUG.is_some_and(|planted| planted == bug)
}

/// Whether this bug is planted: never, in what users get.
#[cfg(not(feature = "seeded-bugs"))]
pub(crate) const fn bug(_: Bug) -> bool {
    false
}

/// A script, with the planted bug if it is one of this script.
#[cfg(feature = "seeded-bugs")]
pub(crate) fn script(file: &str, mut code: String) -> String {
    for &(of, in_file, good, bad) in IN_SCRIPTS {
        if bug(of) && in_file == file {
            if !code.contains(good) {
                planted::abort(&format!("{of:?} does not find `{good}` in {file}"));
            }
            code = code.replace(good, bad);
        }
    }
    code
}

/// A script, as it is.
#[cfg(not(feature = "seeded-bugs"))]
pub(crate) const fn script(_: &str, code: String) -> String {
    code
}

#[cfg(feature = "seeded-bugs")]
mod planted {
    use std::io::Write;
    use std::sync::LazyLock;

    use super::{ALL, Bug};

    /// Which one, by the environment.
    pub(super) static BUG: LazyLock<Option<Bug>> = LazyLock::new(|| {
        let name = std::env::var_os("TENURE_SEEDED_BUG")?;
        let known = ALL.iter().find(|(_, known)| name == **known);
        let Some((bug, _)) = known else {
            abort(&format!("unknown bug {}", name.display()));
        };
        Some(*bug)
    });

    /// Ends the whole process: a panic would fail a test, and that would count as caught. Written
    /// to the stream itself, because the output of a test is kept back until it has failed.
    pub(super) fn abort(why: &str) -> ! {
        let _ = writeln!(std::io::stderr(), "seeded bug: {why}");
        std::process::abort()
    }
}
