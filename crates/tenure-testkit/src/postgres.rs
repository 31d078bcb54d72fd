//! A real PostgreSQL server of one's own, to use and to break.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
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
use crate::spawn;

/// How long a server may take to serve, recovery after a kill included.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a killed server's own processes may take to be gone.
const CHILDREN_LIMIT: Duration = Duration::from_secs(10);
/// How often another port is tried when somebody else took the chosen one first.
const PORT_TRIES: u32 = 8;
/// Lines of the server's log that a panic shows.
const LOG_TAIL_LINES: usize = 20;
/// Who owns everything in the server.
const USER: &str = "tenure";

/// A PostgreSQL server in a directory and on a free port of `127.0.0.1` of its own, killed when dropped.
///
/// It is made by `initdb` and has nothing to do with the cluster that Debian's package may run. As root, it
/// runs as the package's user `postgres`, because PostgreSQL refuses to run as root. What was committed is on
/// disk: `fsync` is on.
#[derive(Debug)]
pub struct PostgresServer {
    port: u16,
    /// `None` while it is killed.
    process: Mutex<Option<Child>>,
    databases: AtomicU32,
    /// After `process`, so that the directory outlives the server.
    files: Files,
}

impl PostgresServer {
    /// Makes a server and starts it. Panics if PostgreSQL is not installed.
    #[track_caller]
    pub fn start() -> Self {
        let files = Files::new();
        files.init();
        for _ in 0..PORT_TRIES {
            let port = free_port();
            match launch(&files, port) {
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

    /// One server for all tests of this process; it ends with it, and its directory too. Not to be broken:
    /// others use it.
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
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// Makes an empty database and returns its URL: a test has one of its own.
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
            Ok(output) => panic!("`{sql}` failed: {}", said(&output)),
            Err(error) => panic!("failed to start psql: {error}"),
        }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the server's first process. Panics if it was killed.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        lock(&self.process)
            .as_ref()
            .expect("the server was killed")
            .id()
    }

    /// Kills the server and all of its processes (`SIGKILL`): nobody gets an answer any more.
    pub fn kill(&self) {
        if let Some(mut process) = lock(&self.process).take() {
            kill_all(&mut process);
        }
    }

    /// Starts a killed server again on what it had on disk, or kills and starts a running one.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        match launch(&self.files, self.port) {
            Ok(process) => *lock(&self.process) = Some(process),
            Err(StartFailure::PortTaken) => panic!("somebody took port `{}`", self.port),
            Err(StartFailure::Other(error)) => panic!("{error}\n{}", self.files.log_tail()),
        }
    }

    /// Stops all processes of the server (`SIGSTOP`): connections stay open, and nobody answers.
    ///
    /// Returns once the kernel has stopped the first of them, the one that takes connections.
    pub fn pause(&self) {
        self.signal_all(Signal::SIGSTOP, spawn::stop);
    }

    /// Lets a paused server go on (`SIGCONT`).
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
        // The first process before the others: it would start new ones for those it takes for dead.
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
    /// As whom the server runs, if not as ourselves.
    owner: Option<(Uid, Gid)>,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("tenure-postgres-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .expect("failed to make a directory for PostgreSQL");
        let files = Self {
            dir,
            owner: owner(),
        };
        remove_in_the_end(files.dir.path());
        fs::create_dir(files.data()).expect("failed to make a data directory");
        drop(files.open_log());
        for path in [files.data(), files.log_path(), files.dir.path().into()] {
            files.give(&path);
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

    fn give(&self, path: &Path) {
        if let Some((user, group)) = self.owner {
            chown(path, Some(user), Some(group)).expect("root may give files away");
        }
    }

    /// A program of PostgreSQL's, run as the owner of the files, that does not outlive us.
    fn command(&self, name: &str) -> Command {
        let mut command;
        if spawn::setpriv_exists() {
            command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL"]);
            if let Some((user, group)) = self.owner {
                // Not by `Command::uid`: a change of user would clear the wish to die with us.
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
        // The caller's own directory may be closed to the owner.
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
            Ok(output) => panic!("initdb failed: {}", said(&output)),
            Err(error) => {
                panic!("failed to start initdb: {error}; `make test` installs PostgreSQL")
            }
        }
    }
}

/// Removes the directory when this process has ended, however it ends: nothing drops a static, nor what a
/// killed process had.
fn remove_in_the_end(dir: &Path) {
    let script = "cat >/dev/null; sleep 1; rm -rf -- \"$0\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(dir);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Ok(child) = command.spawn() {
        // Its input ends when we do.
        std::mem::forget(child);
    }
}

enum StartFailure {
    PortTaken,
    Other(String),
}

/// Starts the process on the files as they are and waits until it serves.
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
                StartFailure::Other(format!("PostgreSQL ended at once with `{status}`"))
            });
        }
        thread::sleep(Duration::from_millis(5));
    }
    let text = format!("PostgreSQL was not ready within `{START_LIMIT:?}`");
    Err(StartFailure::Other(text))
}

/// Kills the first process and those that it started. They share memory with the next server
/// on the same data, which waits for the last of them to be gone.
fn kill_all(process: &mut Child) {
    // Stopped first: it must not start another one that is not on the list.
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

/// The processes that a process has started and that still live.
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
    // The second field is the program's name in parentheses and may itself contain anything.
    let mut fields = stat.rsplit(") ").next()?.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

fn raw_id(process: &Child) -> Pid {
    Pid::from_raw(i32::try_from(process.id()).expect("process ids fit an i32"))
}

/// The package's user, if we are root.
fn owner() -> Option<(Uid, Gid)> {
    if !Uid::effective().is_root() {
        return None;
    }
    let user = User::from_name("postgres").ok().flatten();
    let user = user.expect("there is no user `postgres`: `make test` installs PostgreSQL");
    Some((user.uid, user.gid))
}

/// A program of the newest version that Debian has installed, else of the path.
fn program(name: &str) -> OsString {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let version = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let newest = versions.flatten().filter_map(version).max();
    let path = newest.map(|version| format!("/usr/lib/postgresql/{version}/bin/{name}"));
    let path = path.filter(|path| Path::new(path).exists());
    path.map_or_else(|| name.into(), OsString::from)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("failed to bind a free port");
    let addr = listener.local_addr().expect("a listener has an address");
    addr.port()
}

fn said(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    format!("{}: {}", output.status, stderr.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_committed_survives_a_kill_and_databases_are_apart() {
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
    fn a_paused_server_answers_when_it_goes_on() {
        let server = PostgresServer::start();
        server.pause();
        assert!(spawn::is_stopped(
            lock(&server.process).as_ref().expect("it runs")
        ));
        server.resume();
        assert_eq!(server.run_sql("SELECT 1"), "1");
    }
}
