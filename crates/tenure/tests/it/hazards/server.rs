//! Scripts, types, names, states of the server.

/// H25 to H27: which keys a lock name may have, and which names are allowed.
mod keys;
/// H23 and H24: memory that is full, and servers that throw keys away.
mod memory;
/// H22, H31, H32: scripts that fail, fences that end.
mod scripts;
/// H28 to H30: scripts forgotten, servers that are busy or not in charge.
mod states;
