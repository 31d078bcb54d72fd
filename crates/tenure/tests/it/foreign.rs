//! Locks of other libraries, and keys that are none.
