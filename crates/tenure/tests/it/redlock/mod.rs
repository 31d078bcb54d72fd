//! Several independent servers: what a majority decides, and what one of them cannot.

mod basics;
