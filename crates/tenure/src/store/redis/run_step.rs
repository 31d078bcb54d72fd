//! Steps of a run for one fire time of a schedule.

use super::operation::{Operation, TakeRunStep};
use super::redis_store::RedisStore;
use crate::moment::Moment;
use crate::store::{Failure, RunRequest, RunState};

impl RedisStore {
    pub(super) async fn try_run_step(
        &self,
        request: &RunRequest,
        limit: Moment,
    ) -> Result<RunState, Failure> {
        let step = TakeRunStep(request);
        let taken = self.perform(&step, limit).await?;
        let is_recorded = matches!(taken.reply, RunState::Running(_) | RunState::Completed(_));
        if is_recorded && step.replicas() > 0 {
            let (connection, latest_us) = (&taken.connection, taken.latest_us);
            let confirmed = self.confirm(connection, &request.held, latest_us, limit);
            confirmed.await?;
        }
        Ok(taken.reply)
    }
}
