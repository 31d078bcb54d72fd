//! A prefix per client: users that may touch nothing else, clients that must not meet, and what is
//! refused.

mod apart;
mod input;
mod rights;
mod team;
