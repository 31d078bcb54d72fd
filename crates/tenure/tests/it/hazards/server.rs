//! Scripts, types, names, states of the server.
