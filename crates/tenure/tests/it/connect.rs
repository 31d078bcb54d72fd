//! How to connect: TLS, sockets, users, databases.
