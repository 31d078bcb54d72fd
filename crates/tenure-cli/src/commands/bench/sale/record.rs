//! Every response, written to a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::exit::{Exit, Failed};

/// Writes on its own thread, so that no order waits for a disk.
#[derive(Debug)]
pub struct Recorder {
    lines: Sender<Recorded>,
    writing: JoinHandle<std::io::Result<()>>,
}

/// One response, as programs read it.
#[derive(Debug, Serialize)]
pub struct Recorded {
    pub order: u64,
    pub url: String,
    pub buyer: String,
    pub request: String,
    /// When it was due and when it was sent, after the start.
    pub due_us: u64,
    pub sent_us: u64,
    /// When the response arrived, after it was due.
    pub took_us: u64,
    /// Null if there was no response.
    pub status: Option<u16>,
    pub order_id: Option<String>,
    pub code: Option<String>,
}

impl Recorder {
    pub fn create(path: &Path) -> Result<Self> {
        let failed = |error| {
            let message = format!("cannot write `{}`: {error}", path.display());
            Failed::new(Exit::Usage, message)
        };
        let mut file = BufWriter::new(File::create(path).map_err(failed)?);
        let (lines, received) = channel::<Recorded>();
        let writing = thread::spawn(move || {
            for line in received {
                serde_json::to_writer(&mut file, &line)?;
                file.write_all(b"\n")?;
            }
            file.flush()
        });
        Ok(Self { lines, writing })
    }

    pub fn lines(&self) -> Sender<Recorded> {
        self.lines.clone()
    }

    /// Waits until everything is written.
    pub fn finish(self) -> Result<()> {
        drop(self.lines);
        let written = self.writing.join();
        let written = written.unwrap_or_else(|_| Err(std::io::Error::other("the writer failed")));
        written.context("cannot write the record")
    }
}
