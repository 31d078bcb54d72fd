//! Messages, herds, dead holders.
