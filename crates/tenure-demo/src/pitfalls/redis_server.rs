//! Redis servers that the demo starts and breaks.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tenure::redis::Client;

use super::pitfall::Missing;

const PROGRAM: &str = "redis-server";
/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);
/// How many ports to try if another process takes the chosen one.
const PORT_TRIES: u32 = 5;
/// How often to retry removing its files if new ones appear meanwhile.
const REMOVE_TRIES: u32 = 50;

/// A `redis-server` on a free port of `127.0.0.1`. Dropping this kills it and deletes its files.
pub(crate) struct RedisServer {
    child: Child,
    port: u16,
    /// After `child`, so that the files outlive the server.
    files: Files,
}

struct Files {
    dir: PathBuf,
}

impl RedisServer {
    /// Starts one that persists every acknowledged write, as a Redlock node should.
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts several.
    pub(crate) async fn start_all(count: usize) -> Result<Vec<Self>> {
        let mut servers = Vec::new();
        for _ in 0..count {
            servers.push(Self::start().await?);
        }
        Ok(servers)
    }

    /// Starts one that replicates `master`.
    pub(crate) async fn start_replica_of(master: &Self) -> Result<Self> {
        let port = master.port.to_string();
        Self::start_with(&["--replicaof", "127.0.0.1", &port]).await
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Kills it, as a power failure would.
    pub(crate) fn kill(&mut self) {
        // Includes the child processes that write snapshots for replicas. Errors are ignored: it may have
        // exited already.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it: its connections stay open without responses.
    pub(crate) fn hang(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes after a hang.
    pub(crate) fn go_on(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).with_context(|| format!("cannot send {signal:?} to `{PROGRAM}`"))
    }

    async fn start_with(arguments: &[&str]) -> Result<Self> {
        let mut tries = 1;
        loop {
            match Self::try_start(arguments).await {
                Err(error) if tries < PORT_TRIES && is_port_taken(&error) => tries += 1,
                started => return started,
            }
        }
    }

    async fn try_start(arguments: &[&str]) -> Result<Self> {
        let files = Files::new()?;
        let port = free_port()?;
        let child = command(port, &files, arguments).spawn();
        let child = child.map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow::Error::new(not_in_path()),
            _ => anyhow::Error::new(error).context(format!("cannot start `{PROGRAM}`")),
        })?;
        let mut server = Self { child, port, files };
        server.wait_until_ready().await?;
        Ok(server)
    }

    /// Checks the log instead of the port, because another process may listen there.
    async fn wait_until_ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        while !self.files.log().contains("eady to accept connections") {
            let ended = self.child.try_wait()?;
            if ended.is_some() || begun.elapsed() > START_MAX {
                let log = self.files.log();
                let last = log.lines().next_back().unwrap_or("its log is empty");
                bail!("`{PROGRAM}` did not start: {last}");
            }
            tokio::time::sleep(LOOK).await;
        }
        match Client::connect(self.url()).await {
            Err(error) if error.kind() == tenure::ErrorKind::Unsupported => {
                Err(Missing(error.to_string()).into())
            }
            connected => Ok(connected.map(drop)?),
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Files {
    fn new() -> Result<Self> {
        let name = format!("tenure-demo-{:016x}", rand::random::<u64>());
        let dir = std::env::temp_dir().join(name);
        let making = fs::DirBuilder::new().mode(0o700).create(&dir);
        making.with_context(|| format!("cannot create the directory `{}`", dir.display()))?;
        Ok(Self { dir })
    }

    fn path(&self) -> &Path {
        &self.dir
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("log")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // A killed child process of the server may still write its last file.
        for _ in 0..REMOVE_TRIES {
            let removed = fs::remove_dir_all(&self.dir);
            if !removed.is_err_and(|error| error.kind() == ErrorKind::DirectoryNotEmpty) {
                return;
            }
            thread::sleep(LOOK);
        }
    }
}

fn command(port: u16, files: &Files, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
    command.arg("--dir").arg(files.path());
    command.arg("--logfile").arg(files.log_path());
    command.args(["--daemonize", "no", "--save", ""]);
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    command.args(["--repl-diskless-sync-delay", "0"]);
    command.args(arguments);
    // Ctrl-C on a terminal reaches the whole process group: only this process should get it and stop
    // the servers.
    command.process_group(0);
    command.stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = listener.context("cannot find a free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}

fn is_port_taken(error: &anyhow::Error) -> bool {
    error.to_string().contains("ddress already in use")
}

fn not_in_path() -> Missing {
    Missing(format!(
        "`{PROGRAM}` not found in PATH: install Redis to run this one"
    ))
}
