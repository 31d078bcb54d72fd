//! The servers of a run.

use tenure_testkit::{Fsync, PostgresServer, Proxy, RedisServer, Sentinels};

use crate::deployment::Deployment;

pub struct Stage {
    pub gate: GateServers,
    pub ledger: PostgresServer,
}

pub enum GateServers {
    Single(RedisServer),
    Sentinel(Sentinels),
}

impl Stage {
    pub fn start(deployment: Deployment) -> Self {
        let gate = match deployment {
            Deployment::Single => GateServers::Single(
                RedisServer::builder()
                    // With `everysec`, Redis replies before it writes while the disk is slow.
                    .aof(Fsync::Always)
                    // Long scripts are answered with BUSY instead of silence.
                    .config("busy-reply-threshold", "500")
                    .start(),
            ),
            Deployment::Sentinel => {
                GateServers::Sentinel(Sentinels::builder().aof(Fsync::Everysec).start())
            }
        };
        Self {
            gate,
            ledger: PostgresServer::start(),
        }
    }

    /// The proxies between one process and the gate. Sentinels name their servers themselves, so nothing
    /// can stand between.
    pub fn proxy(&self) -> Option<Proxy> {
        match &self.gate {
            GateServers::Single(server) => Some(Proxy::start(server.addr())),
            GateServers::Sentinel(_) => None,
        }
    }

    pub fn gate_url(&self, proxy: Option<&Proxy>) -> String {
        match (&self.gate, proxy) {
            (_, Some(proxy)) => proxy.url(),
            (GateServers::Single(server), None) => server.url(),
            (GateServers::Sentinel(sentinels), None) => sentinels.url(),
        }
    }

    pub fn ledger_url(&self) -> String {
        self.ledger.url()
    }

    /// The server that is the gate now.
    pub fn master(&self) -> &RedisServer {
        match &self.gate {
            GateServers::Single(server) => server,
            GateServers::Sentinel(sentinels) => sentinels.master(),
        }
    }
}
