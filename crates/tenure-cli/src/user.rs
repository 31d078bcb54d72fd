//! The user of this process.

use nix::unistd::{Uid, User};

/// The account that runs this process, by its name in the system: the environment may be wrong, and
/// cron leaves it empty.
pub fn name() -> String {
    let uid = Uid::current();
    let known = User::from_uid(uid).ok().flatten();
    known.map_or_else(|| format!("uid {uid}"), |user| user.name)
}
