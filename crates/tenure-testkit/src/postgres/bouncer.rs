//! `PgBouncer` in front of a PostgreSQL server.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

use super::{PostgresServer, START_LIMIT, USER, program};
use crate::port::ReservedPort;
use crate::spawn;
use crate::wait::eventually;

/// A `PgBouncer` that gives each client a connection of its own (`pool_mode = session`) and has no
/// other settings that a client could notice; killed when dropped.
#[derive(Debug)]
pub struct PgBouncer {
    process: Child,
    port: ReservedPort,
}

impl PgBouncer {
    /// Starts one in front of this server; `None` if it is not installed.
    #[track_caller]
    pub fn start(server: &PostgresServer) -> Option<Self> {
        if !Path::new(&program("pgbouncer")).exists() {
            return None;
        }
        let port = ReservedPort::new();
        let file = |end: &str| {
            server
                .files
                .dir
                .path()
                .join(format!("bouncer-{}.{end}", port.get()))
        };
        let (settings, users) = (file("ini"), file("users"));
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             pool_mode = session\n",
            server.port(),
            port.get(),
            users.display()
        );
        for (path, text) in [(&settings, text), (&users, format!("\"{USER}\" \"\"\n"))] {
            fs::write(path, text).expect("failed to write PgBouncer's settings");
            server.files.set_owner(path);
        }
        let mut command = server.files.command("pgbouncer");
        command.arg("--quiet").arg(&settings);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = spawn::spawn(command).expect("failed to start PgBouncer");
        let bouncer = Self { process, port };
        let listens = || TcpStream::connect(("127.0.0.1", bouncer.port.get())).is_ok();
        assert!(
            eventually(START_LIMIT, listens),
            "PgBouncer does not listen after {START_LIMIT:?}"
        );
        Some(bouncer)
    }

    /// The URL of a database of the server behind it.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port.get())
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        spawn::kill_and_wait(&mut self.process);
    }
}
