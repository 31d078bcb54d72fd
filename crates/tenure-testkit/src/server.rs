//! A real, private `redis-server`, to use and to break.

mod builder;
mod faults;
mod stats;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
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
use crate::port::ReservedPort;
use crate::resp::RespClient;
use crate::server_dir::server_dir;
use crate::{TlsFiles, spawn};

/// How long a server may take to answer its first `PING`.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How many ports to try if another process takes the chosen one.
const PORT_TRIES: u32 = 8;
/// Lines of the server's log that a panic shows.
const LOG_TAIL_LINES: usize = 20;
/// The kit's own user, so that its faults work whatever passwords and users a test sets up.
pub(crate) const ADMIN_USER: &str = "testkit";
pub(crate) const ADMIN_PASSWORD: &str = "testkit-secret";

/// A `redis-server` on a free port of `127.0.0.1`, killed when dropped.
///
/// Every method takes `&self`, so one thread can break a server while others use it. Methods that
/// query the server open a new connection as the user `testkit`. They panic with the end of the
/// server's log if it does not answer.
#[derive(Debug)]
pub struct RedisServer {
    setup: ServerBuilder,
    process: Mutex<Child>,
    /// Declared after `process`, so that port and directory outlive the server.
    port: ReservedPort,
    tls_port: Option<ReservedPort>,
    files: Files,
}

impl RedisServer {
    /// Starts a server with the kit's defaults: no persistence, no password.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Builds a server with custom settings.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// `redis://127.0.0.1:PORT/`, with the password if there is one.
    pub fn url(&self) -> String {
        self.url_by_way_of(self.addr())
    }

    /// Like [`url`](Self::url), but with the address of a [`Proxy`](crate::Proxy).
    pub fn url_by_way_of(&self, addr: SocketAddr) -> String {
        format!("redis://{}{addr}/", self.credentials())
    }

    /// `rediss://` with the TLS port and `?ca=PATH`, plus `&cert=PATH&key=PATH` with client
    /// authentication. Panics if the server was built without TLS.
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

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.get()).into()
    }

    /// The plain port.
    pub fn port(&self) -> u16 {
        self.port.get()
    }

    /// The address it listens on for TLS. Panics if the server was built without TLS.
    #[track_caller]
    pub fn tls_addr(&self) -> SocketAddr {
        let port = self.tls_port.as_ref().expect("the server has no tls").get();
        (Ipv4Addr::LOCALHOST, port).into()
    }

    /// The certificates in use. Panics if the server was built without TLS.
    #[track_caller]
    pub fn tls_files(&self) -> TlsFiles {
        let tls = self.setup.tls.as_ref().expect("the server has no tls");
        tls.clone()
    }

    /// A connection with all permissions.
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

    /// The port that the other servers of its deployment use.
    pub(crate) fn peer_port(&self) -> u16 {
        self.peer_addr().port()
    }

    /// The address that the other servers of its deployment use, with the TLS port if they use TLS.
    pub(crate) fn peer_addr(&self) -> SocketAddr {
        if self.setup.tls_with == TlsWith::All {
            return self.tls_addr();
        }
        self.addr()
    }

    /// The certificate parameters of a URL: `ca=PATH`, and the client's certificate if required.
    pub(crate) fn tls_parameters(&self) -> String {
        let tls = self.tls_files();
        let mut parameters = format!("ca={}", tls.ca.display());
        if self.setup.auth_clients {
            let (cert, key) = (tls.client_cert.display(), tls.client_key.display());
            let _ = write!(parameters, "&cert={cert}&key={key}");
        }
        parameters
    }

    /// Whether both are the same server.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.port.get() == other.port.get()
    }

    pub(crate) fn try_client(&self) -> Result<RespClient, String> {
        connect_as_admin(self.port.get())
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

/// The server's directory: configuration, log and socket, and a separate folder for the data, so that
/// only the data can be deleted.
#[derive(Debug)]
struct Files {
    dir: TempDir,
}

impl Files {
    fn new() -> Self {
        let dir = server_dir("redis-");
        fs::create_dir(dir.path().join("data")).expect("failed to create a data directory");
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

/// Starts a new server on free ports, and retries with others if they get taken.
fn start(mut setup: ServerBuilder) -> RedisServer {
    let files = Files::new();
    setup.prepare(files.path());
    for _ in 0..PORT_TRIES {
        let port = ReservedPort::new();
        let tls_port = setup.tls.is_some().then(ReservedPort::new);
        let conf = setup.conf(&files, port.get(), tls_port.as_ref().map(ReservedPort::get));
        fs::write(files.conf(), conf).expect("failed to write redis.conf");
        match launch(&setup, &files, port.get()) {
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

/// Starts several servers concurrently.
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

/// The ends of the logs of several servers, for panic messages.
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

/// Starts the process on the existing files and waits until it is ready.
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
    let ready = wait_until_ready(setup, &mut process, files, log_start, port).and_then(|()| {
        setup
            .run_startup_commands(port)
            .map_err(StartFailure::Other)
    });
    if ready.is_err() {
        spawn::kill_and_wait(&mut process);
    }
    ready.map(|()| process)
}

/// The server program: `$REDIS_SERVER`, else `redis-server` from `PATH`.
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
        // A reply alone could come from another server on the same port, so check the log too.
        if log.contains(setup.ready_words()) && answers_ping(port) {
            return Ok(());
        }
        if let Ok(Some(status)) = process.try_wait() {
            let log = files.log().split_off(log_start);
            return Err(if log.contains("Address already in use") {
                StartFailure::PortTaken
            } else {
                StartFailure::Other(format!("redis-server exited immediately with `{status}`"))
            });
        }
        thread::sleep(Duration::from_millis(2));
    }
    let state = state_of(process);
    let text = format!("redis-server was not ready within `{START_LIMIT:?}`: {state}");
    Err(StartFailure::Other(text))
}

/// What a process that makes no progress is doing: stopped, waiting, or busy.
fn state_of(process: &Child) -> String {
    let read = |file: &str| {
        let text = fs::read_to_string(format!("/proc/{}/{file}", process.id()));
        text.unwrap_or_else(|error| error.to_string())
    };
    let (stat, wchan) = (read("stat"), read("wchan"));
    format!("its /proc/stat is `{}`, it waits in `{wchan}`", stat.trim())
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
