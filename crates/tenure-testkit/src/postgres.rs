//! A real, private PostgreSQL server, to use and to break.

mod bouncer;

pub use bouncer::PgBouncer;

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid, User, chown};
use tempfile::TempDir;

use crate::mutex::lock;
use crate::port::ReservedPort;
use crate::server_dir::server_dir;
use crate::spawn;

/// How long a server may take to start, including recovery after a kill.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long the child processes of a killed server may take to exit.
const CHILDREN_LIMIT: Duration = Duration::from_secs(10);
/// How many ports to try if another process takes the chosen one.
const PORT_TRIES: u32 = 8;
/// Lines of the server's log that a panic shows.
const LOG_TAIL_LINES: usize = 20;
/// The superuser of the server.
const USER: &str = "tenure";

/// A PostgreSQL server with its own directory, on a free port of `127.0.0.1`, killed when dropped.
///
/// It is created by `initdb` and independent of a cluster that Debian's package may run. If the test
/// runs as root, the server runs as the package's user `postgres`, because PostgreSQL refuses to run as
/// root. Commits are durable: `fsync` is on.
#[derive(Debug)]
pub struct PostgresServer {
    /// `None` after a kill.
    process: Mutex<Option<Child>>,
    databases: AtomicU32,
    /// Declared after `process`, so that port and directory outlive the server.
    port: ReservedPort,
    files: Files,
}

impl PostgresServer {
    /// Creates and starts a server. Panics if PostgreSQL is not installed.
    #[track_caller]
    pub fn start() -> Self {
        let files = Files::new();
        files.init();
        for _ in 0..PORT_TRIES {
            let port = ReservedPort::new();
            match launch(&files, port.get()) {
                Ok(process) => {
                    return Self {
                        port,
                        process: Mutex::new(Some(process)),
                        databases: AtomicU32::new(0),
                        files,
                    };
                }
                Err(StartFailure::PortTaken) => {}
                Err(StartFailure::Other(error)) => panic!("{error}\n{}", files.log_tail()),
            }
        }
        panic!("found no free port in `{PORT_TRIES}` tries");
    }

    /// One server for all tests of this process; it ends with the process, and its directory is removed.
    /// Tests must not break it, because others use it.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// `postgres://tenure@127.0.0.1:PORT/postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL of another database.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port.get())
    }

    /// Creates an empty database and returns its URL: each test uses its own.
    #[track_caller]
    pub fn create_database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{number}");
        self.run_sql(&format!("CREATE DATABASE {name}"));
        self.url_of(&name)
    }

    /// Runs SQL in the database `postgres` and returns what it prints, without headings.
    #[track_caller]
    pub fn run_sql(&self, sql: &str) -> String {
        self.run_sql_in("postgres", sql)
    }

    /// Runs SQL in a database and returns what it prints, without headings.
    #[track_caller]
    pub fn run_sql_in(&self, database: &str, sql: &str) -> String {
        let output = Command::new(program("psql"))
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
            .args(["--set", "ON_ERROR_STOP=1", "--command", sql])
            .arg(self.url_of(database))
            .output();
        match output {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            }
            Ok(output) => panic!("`{sql}` failed: {}", error_of(&output)),
            Err(error) => panic!("failed to start psql: {error}"),
        }
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port.get()
    }

    /// The id of the server's main process. Panics if it was killed.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        lock(&self.process)
            .as_ref()
            .expect("the server was killed")
            .id()
    }

    /// Kills the server and all its processes (`SIGKILL`).
    pub fn kill(&self) {
        if let Some(mut process) = lock(&self.process).take() {
            kill_all(&mut process);
        }
    }

    /// Restarts the server on its data directory; kills it first if it is running.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        match launch(&self.files, self.port.get()) {
            Ok(process) => *lock(&self.process) = Some(process),
            Err(StartFailure::PortTaken) => {
                panic!("another process took port `{}`", self.port.get())
            }
            Err(StartFailure::Other(error)) => panic!("{error}\n{}", self.files.log_tail()),
        }
    }

    /// Stops all processes of the server (`SIGSTOP`): connections stay open without replies.
    ///
    /// Returns once the kernel has stopped the main process, which accepts connections.
    pub fn pause(&self) {
        self.signal_all(Signal::SIGSTOP, spawn::stop);
    }

    /// Resumes a paused server (`SIGCONT`).
    pub fn resume(&self) {
        self.signal_all(Signal::SIGCONT, spawn::cont);
    }

    /// Everything that the server has logged since its first start.
    pub fn log(&self) -> String {
        self.files.log()
    }

    fn signal_all(&self, signal: Signal, signal_first: fn(&Child)) {
        let process = lock(&self.process);
        let Some(process) = process.as_ref() else {
            return;
        };
        // The main process first: it would replace children that look dead.
        signal_first(process);
        for child in children_of(raw_id(process)) {
            let _ = kill(child, signal);
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The server's directory.
#[derive(Debug)]
struct Files {
    dir: TempDir,
    /// The user that the server runs as, if not the current one.
    owner: Option<(Uid, Gid)>,
}

impl Files {
    fn new() -> Self {
        let dir = server_dir("postgres-");
        let files = Self {
            dir,
            owner: owner(),
        };
        fs::create_dir(files.data()).expect("failed to create a data directory");
        drop(files.open_log());
        for path in [files.data(), files.log_path(), files.dir.path().into()] {
            files.set_owner(&path);
        }
        files
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("postgres.log")
    }

    fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n");
        format!("PostgreSQL's log ends with:\n{tail}")
    }

    fn open_log(&self) -> File {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(self.log_path());
        file.expect("failed to open PostgreSQL's log")
    }

    fn set_owner(&self, path: &Path) {
        if let Some((user, group)) = self.owner {
            chown(path, Some(user), Some(group)).expect("failed to change the owner of a file");
        }
    }

    /// A PostgreSQL program, run as the owner of the files, that does not outlive this process.
    fn command(&self, name: &str) -> Command {
        let mut command;
        if spawn::setpriv_exists() {
            command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL"]);
            if let Some((user, group)) = self.owner {
                // Not `Command::uid`: a change of user would clear the parent-death signal.
                let (user, group) = (user.to_string(), group.to_string());
                command.args(["--reuid", &user, "--regid", &group, "--clear-groups"]);
            }
            command.arg("--").arg(program(name));
        } else {
            command = Command::new(program(name));
            if let Some((user, group)) = self.owner {
                command.uid(user.as_raw()).gid(group.as_raw());
            }
        }
        // The owner may not have access to the current directory.
        command.current_dir(self.dir.path());
        command
    }

    #[track_caller]
    fn init(&self) {
        let mut command = self.command("initdb");
        command
            .args(["--auth=trust", "--encoding=UTF8", "--locale=C"])
            .args(["--username", USER, "--no-instructions", "--no-sync"])
            .arg("--pgdata")
            .arg(self.data());
        match command.output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => panic!("initdb failed: {}", error_of(&output)),
            Err(error) => {
                panic!("failed to start initdb: {error}; `make test` installs PostgreSQL")
            }
        }
    }
}

enum StartFailure {
    PortTaken,
    Other(String),
}

/// Starts the process on the existing files and waits until it is ready.
fn launch(files: &Files, port: u16) -> Result<Child, StartFailure> {
    let log_start = files.log().len();
    let mut command = files.command("postgres");
    command
        .arg("-D")
        .arg(files.data())
        .args(["-p", &port.to_string(), "-h", "127.0.0.1"])
        .args(["-c", "unix_socket_directories="])
        .args(["-c", "fsync=on", "-c", "max_connections=100"])
        .args(["-c", "shared_buffers=32MB", "-c", "logging_collector=off"])
        .stdin(Stdio::null())
        .stdout(files.open_log())
        .stderr(files.open_log());
    let mut process = spawn::spawn(command)
        .map_err(|error| StartFailure::Other(format!("failed to start PostgreSQL: {error}")))?;
    let ready = wait_until_ready(&mut process, files, log_start);
    if ready.is_err() {
        kill_all(&mut process);
    }
    ready.map(|()| process)
}

fn wait_until_ready(
    process: &mut Child,
    files: &Files,
    log_start: usize,
) -> Result<(), StartFailure> {
    let end = Instant::now() + START_LIMIT;
    while Instant::now() < end {
        let log = files.log().split_off(log_start);
        if log.contains("database system is ready to accept connections") {
            return Ok(());
        }
        if let Ok(Some(status)) = process.try_wait() {
            let log = files.log().split_off(log_start);
            return Err(if log.contains("could not bind") {
                StartFailure::PortTaken
            } else {
                StartFailure::Other(format!("PostgreSQL exited immediately with `{status}`"))
            });
        }
        thread::sleep(Duration::from_millis(5));
    }
    let text = format!("PostgreSQL was not ready within `{START_LIMIT:?}`");
    Err(StartFailure::Other(text))
}

/// Kills the main process and its children. They share memory with the next server on the same data,
/// which waits until all of them are gone.
fn kill_all(process: &mut Child) {
    // Stopped first, so that it starts no further child that is not on the list.
    let _ = kill(raw_id(process), Signal::SIGSTOP);
    let children = children_of(raw_id(process));
    spawn::kill_and_wait(process);
    for child in &children {
        let _ = kill(*child, Signal::SIGKILL);
    }
    let gone = |child: &Pid| kill(*child, None).is_err() || is_zombie(*child);
    let end = Instant::now() + CHILDREN_LIMIT;
    while Instant::now() < end && !children.iter().all(gone) {
        thread::sleep(Duration::from_millis(2));
    }
}

/// The running child processes of a process.
fn children_of(parent: Pid) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let id = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw);
    let ids = processes.flatten().filter_map(id);
    ids.filter(|id| stat(*id).is_some_and(|(_, its_parent)| its_parent == parent.as_raw()))
        .collect()
}

fn is_zombie(process: Pid) -> bool {
    stat(process).is_none_or(|(state, _)| state == 'Z')
}

/// State letter and parent.
fn stat(process: Pid) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may contain any character.
    let mut fields = stat.rsplit(") ").next()?.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

fn raw_id(process: &Child) -> Pid {
    Pid::from_raw(i32::try_from(process.id()).expect("process ids fit an i32"))
}

/// The package's user, if the current user is root.
fn owner() -> Option<(Uid, Gid)> {
    if !Uid::effective().is_root() {
        return None;
    }
    let user = User::from_name("postgres").ok().flatten();
    let user = user.expect("user `postgres` not found: `make test` installs PostgreSQL");
    Some((user.uid, user.gid))
}

/// A program of the newest version that Debian has installed, else from `PATH`.
fn program(name: &str) -> OsString {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let version = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let newest = versions.flatten().filter_map(version).max();
    let path = newest.map(|version| format!("/usr/lib/postgresql/{version}/bin/{name}"));
    // Not in the path of users.
    let paths = path.into_iter().chain([format!("/usr/sbin/{name}")]);
    let path = paths.into_iter().find(|path| Path::new(path).exists());
    path.map_or_else(|| name.into(), OsString::from)
}

fn error_of(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    format!("{}: {}", output.status, stderr.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_survive_a_kill_and_databases_are_separate() {
        let server = PostgresServer::start();
        let first = server.create_database();
        let second = server.create_database();
        assert_ne!(first, second);
        server.run_sql_in("test_0", "CREATE TABLE t (n int); INSERT INTO t VALUES (7)");
        server.restart();
        assert_eq!(server.run_sql_in("test_0", "SELECT n FROM t"), "7");
        assert_eq!(server.run_sql("SHOW fsync"), "on");
    }

    #[test]
    fn a_paused_server_answers_after_it_resumes() {
        let server = PostgresServer::start();
        server.pause();
        assert!(spawn::is_stopped(
            lock(&server.process).as_ref().expect("it runs")
        ));
        server.resume();
        assert_eq!(server.run_sql("SELECT 1"), "1");
    }
}
