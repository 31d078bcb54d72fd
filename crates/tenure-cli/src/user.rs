//! Whose process this is.

use nix::unistd::{Uid, User};

/// The account that runs this, by the name that the system has for it: an environment can say
/// anything, and cron's says nothing.
pub fn name() -> String {
    let uid = Uid::current();
    let known = User::from_uid(uid).ok().flatten();
    known.map_or_else(|| format!("uid {uid}"), |user| user.name)
}
