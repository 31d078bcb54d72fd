//! A caller that waits for its guard.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::belief::Belief;
use crate::client_handle::ClientHandle;
use crate::engine::local_queue::Caller;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::holds::Holds;

pub(crate) struct WaitingCaller {
    client: Arc<ClientHandle>,
    owner: Option<Arc<Holds>>,
    number: u64,
    reply: oneshot::Sender<Result<Guard>>,
}

impl WaitingCaller {
    pub(crate) fn new(
        client: &Arc<ClientHandle>,
        owner: Option<&Arc<Holds>>,
        number: u64,
    ) -> (Self, oneshot::Receiver<Result<Guard>>) {
        let (reply, answer) = oneshot::channel();
        let caller = Self {
            client: Arc::clone(client),
            owner: owner.cloned(),
            number,
            reply,
        };
        (caller, answer)
    }
}

impl Caller for WaitingCaller {
    fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }

    // If the caller leaves at this moment, the guard is dropped here, which releases the lease or
    // hands it off.

    fn grant(self: Box<Self>, belief: Arc<Belief>) {
        self.client.core.track(&belief);
        self.grant_tracked(belief);
    }

    fn grant_tracked(self: Box<Self>, belief: Arc<Belief>) {
        let hold = Hold::for_waiter(self.client, self.owner, belief, self.number);
        let _ = self.reply.send(Ok(Guard::new(hold)));
    }

    fn fail(self: Box<Self>, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}
