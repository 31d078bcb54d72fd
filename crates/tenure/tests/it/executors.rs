//! Executors that futures run on.
