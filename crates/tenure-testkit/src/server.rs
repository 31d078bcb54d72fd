//! A real `redis-server` of one's own, to use and to break.

mod builder;
mod faults;
mod stats;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use builder::{Fsync, ServerBuilder};
use builder::{Mode, TlsWith};
pub use faults::{BusyScript, ClientKind};
pub(crate) use stats::field_of;

use crate::mutex::lock;
use crate::resp::RespClient;
use crate::{TlsFiles, spawn};

/// How long a server may take to answer its first `PING`.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How often another port is tried when somebody else took the chosen one first.
const PORT_TRIES: u32 = 8;
/// The cluster bus listens 10000 above the port, which must fit as well.
const PORT_MAX: u16 = 55_535;
/// Lines of the server's log that a panic shows.
const LOG_TAIL_LINES: usize = 20;
/// The kit's own user: its faults work whatever passwords and users a test sets up.
pub(crate) const ADMIN_USER: &str = "testkit";
pub(crate) const ADMIN_PASSWORD: &str = "testkit-secret";

/// A `redis-server` on a free port of `127.0.0.1`, killed when dropped.
///
/// Every method takes `&self`, so a server can be broken from one thread while others use it.
/// Methods that ask the server open a connection of their own for that, as the user `testkit`;
/// they panic, with the end of the server's log, when it does not answer.
#[derive(Debug)]
pub struct RedisServer {
    setup: ServerBuilder,
    port: u16,
    tls_port: Option<u16>,
    process: Mutex<Child>,
    /// After `process`, so that the directory outlives the server.
    files: Files,
}

impl RedisServer {
    /// Starts a server with the kit's defaults: no persistence, no password.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server with settings of one's own.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// `redis://127.0.0.1:PORT/`, with the password if there is one.
    pub fn url(&self) -> String {
        self.url_by_way_of(self.addr())
    }

    /// As [`url`](Self::url), for those who reach the server at `addr`, where a
    /// [`Proxy`](crate::Proxy) stands.
    pub fn url_by_way_of(&self, addr: SocketAddr) -> String {
        format!("redis://{}{addr}/", self.credentials())
    }

    /// `rediss://` with the TLS port and `?ca=PATH`; with client authentication also
    /// `&cert=PATH&key=PATH`. Panics if the server was built without TLS.
    #[track_caller]
    pub fn tls_url(&self) -> String {
        let (credentials, addr) = (self.credentials(), self.tls_addr());
        format!("rediss://{credentials}{addr}/?{}", self.tls_parameters())
    }

    /// `unix://PATH`, with `?pass=` if there is a password. Panics if the server was built without
    /// a socket.
    #[track_caller]
    pub fn unix_url(&self) -> String {
        assert!(self.setup.unix_socket, "the server has no unix socket");
        let url = format!("unix://{}", self.files.socket().display());
        match &self.setup.password {
            Some(password) => format!("{url}?pass={password}"),
            None => url,
        }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The plain port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens for TLS. Panics if the server was built without TLS.
    #[track_caller]
    pub fn tls_addr(&self) -> SocketAddr {
        let port = self.tls_port.expect("the server has no tls");
        (Ipv4Addr::LOCALHOST, port).into()
    }

    /// The certificates in use. Panics if the server was built without TLS.
    #[track_caller]
    pub fn tls_files(&self) -> TlsFiles {
        let tls = self.setup.tls.as_ref().expect("the server has no tls");
        tls.clone()
    }

    /// A connection that may do everything.
    #[track_caller]
    pub fn client(&self) -> RespClient {
        match self.try_client() {
            Ok(client) => client,
            Err(error) => self.fail(&format!("failed to connect to `{}`: {error}", self.addr())),
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process().id()
    }

    /// Everything that the server has logged since its first start.
    pub fn log(&self) -> String {
        self.files.log()
    }

    /// The port at which the other servers of its deployment know it.
    pub(crate) fn peer_port(&self) -> u16 {
        self.peer_addr().port()
    }

    /// Where the other servers of its deployment find it: at its port for TLS, if they speak that.
    pub(crate) fn peer_addr(&self) -> SocketAddr {
        if self.setup.tls_with == TlsWith::Everybody {
            return self.tls_addr();
        }
        self.addr()
    }

    /// What a URL says of certificates: `ca=PATH`, and those of a client if it must show one.
    pub(crate) fn tls_parameters(&self) -> String {
        let tls = self.tls_files();
        let mut parameters = format!("ca={}", tls.ca.display());
        if self.setup.auth_clients {
            let (cert, key) = (tls.client_cert.display(), tls.client_key.display());
            let _ = write!(parameters, "&cert={cert}&key={key}");
        }
        parameters
    }

    /// Whether both are the same one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.port == other.port
    }

    pub(crate) fn try_client(&self) -> Result<RespClient, String> {
        connect_as_admin(self.port)
    }

    /// `:PASSWORD@`, or nothing.
    pub(crate) fn credentials(&self) -> String {
        let password = self.setup.password.as_ref();
        password.map_or_else(String::new, |password| format!(":{password}@"))
    }

    fn process(&self) -> MutexGuard<'_, Child> {
        lock(&self.process)
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        panic!("{what}\n{}", self.files.log_tail());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        spawn::kill_and_wait(&mut self.process());
    }
}

/// The server's directory: configuration, log and socket, and its data in a folder of their own so
/// that they can be thrown away alone.
#[derive(Debug)]
struct Files {
    dir: TempDir,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("tenure-redis-")
            .tempdir()
            .expect("failed to make a directory for redis-server");
        fs::create_dir(dir.path().join("data")).expect("failed to make a data directory");
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    fn socket(&self) -> PathBuf {
        self.path().join("redis.sock")
    }

    fn conf(&self) -> PathBuf {
        self.path().join("redis.conf")
    }

    fn log_path(&self) -> PathBuf {
        self.path().join("redis.log")
    }

    fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n");
        format!("redis-server's log ends with:\n{tail}")
    }

    fn open_log(&self) -> File {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(self.log_path());
        file.expect("failed to open redis-server's log")
    }
}

/// Starts a server anew on ports that are free now, and again on others if they were taken.
fn start(mut setup: ServerBuilder) -> RedisServer {
    let files = Files::new();
    setup.prepare(files.path());
    for _ in 0..PORT_TRIES {
        let port = free_port();
        let tls_port = setup.tls.is_some().then(free_port);
        fs::write(files.conf(), setup.conf(&files, port, tls_port))
            .expect("failed to write redis.conf");
        match launch(&setup, &files, port) {
            Ok(process) => {
                return RedisServer {
                    setup,
                    port,
                    tls_port,
                    process: Mutex::new(process),
                    files,
                };
            }
            Err(StartFailure::PortTaken) => {}
            Err(StartFailure::Other(error)) => panic!("{error}\n{}", files.log_tail()),
        }
    }
    panic!("found no free port in `{PORT_TRIES}` tries");
}

/// Starts several servers at once.
pub(crate) fn start_all(setups: Vec<ServerBuilder>) -> Vec<RedisServer> {
    thread::scope(|scope| {
        let starting: Vec<_> = setups
            .into_iter()
            .map(|setup| scope.spawn(|| setup.start()))
            .collect();
        let started = starting.into_iter().map(|thread| match thread.join() {
            Ok(server) => server,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        started.collect()
    })
}

/// The ends of the logs of several servers, for the message of a panic.
pub(crate) fn log_tails<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> String {
    let mut tails = String::new();
    for server in servers {
        let (addr, tail) = (server.addr(), server.files.log_tail());
        let _ = writeln!(tails, "at `{addr}` {tail}");
    }
    tails
}

enum StartFailure {
    PortTaken,
    Other(String),
}

/// Starts the process on the files as they are and waits until it serves.
fn launch(setup: &ServerBuilder, files: &Files, port: u16) -> Result<Child, StartFailure> {
    let log_start = files.log().len();
    let mut command = spawn::mortal(program().as_ref());
    command
        .arg(files.conf())
        .stdin(Stdio::null())
        .stdout(files.open_log())
        .stderr(files.open_log());
    if setup.mode == Mode::Sentinel {
        command.arg("--sentinel");
    }
    if let Some(clock) = &setup.clock {
        clock.apply(&mut command);
    }
    let mut process = spawn::spawn(command)
        .map_err(|error| StartFailure::Other(format!("failed to start redis-server: {error}")))?;
    let ready = wait_until_ready(setup, &mut process, files, log_start, port)
        .and_then(|()| setup.greet(port).map_err(StartFailure::Other));
    if ready.is_err() {
        spawn::kill_and_wait(&mut process);
    }
    ready.map(|()| process)
}

/// The server program: `$REDIS_SERVER`, else the `redis-server` of the path.
fn program() -> OsString {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

fn wait_until_ready(
    setup: &ServerBuilder,
    process: &mut Child,
    files: &Files,
    log_start: usize,
    port: u16,
) -> Result<(), StartFailure> {
    let end = Instant::now() + START_LIMIT;
    while Instant::now() < end {
        let log = files.log().split_off(log_start);
        // An answer alone could come from a stranger on the same port; the log is our server's.
        if log.contains(setup.ready_words()) && answers_ping(port) {
            return Ok(());
        }
        if let Ok(Some(status)) = process.try_wait() {
            let log = files.log().split_off(log_start);
            return Err(if log.contains("Address already in use") {
                StartFailure::PortTaken
            } else {
                StartFailure::Other(format!("redis-server ended at once with `{status}`"))
            });
        }
        thread::sleep(Duration::from_millis(2));
    }
    let text = format!("redis-server was not ready within `{START_LIMIT:?}`");
    Err(StartFailure::Other(text))
}

fn connect_as_admin(port: u16) -> Result<RespClient, String> {
    let addr = (Ipv4Addr::LOCALHOST, port).into();
    let mut client = RespClient::try_connect(addr).map_err(|error| error.to_string())?;
    client.try_command(&["AUTH", ADMIN_USER, ADMIN_PASSWORD])?;
    Ok(client)
}

fn answers_ping(port: u16) -> bool {
    let Ok(mut client) = RespClient::try_connect((Ipv4Addr::LOCALHOST, port).into()) else {
        return false;
    };
    match client.try_command(&["PING"]) {
        Ok(_) => true,
        Err(error) => error.starts_with("NOAUTH"),
    }
}

fn free_port() -> u16 {
    loop {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("failed to bind a free port");
        let addr = listener.local_addr().expect("a listener has an address");
        if addr.port() <= PORT_MAX {
            return addr.port();
        }
    }
}
