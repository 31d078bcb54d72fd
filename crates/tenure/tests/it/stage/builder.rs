//! The settings of a client of any deployment.

use std::time::Duration;

use tenure::{Builder, Locks, Redlock, Result, Tenure, blocking};

#[derive(Clone, Debug)]
pub enum StageBuilder {
    Tenure(Builder<Tenure>),
    Redlock(Builder<Redlock>),
}

impl StageBuilder {
    pub fn name(self, name: &str) -> Self {
        self.change(|it| it.name(name), |it| it.name(name))
    }

    pub fn about(self, field: &str, value: &str) -> Self {
        self.change(|it| it.about(field, value), |it| it.about(field, value))
    }

    pub fn hand_off(self, on: bool) -> Self {
        self.change(|it| it.hand_off(on), |it| it.hand_off(on))
    }

    pub fn hand_off_turns(self, turns: u32) -> Self {
        self.change(|it| it.hand_off_turns(turns), |it| it.hand_off_turns(turns))
    }

    pub fn hand_off_time(self, time: Duration) -> Self {
        self.change(|it| it.hand_off_time(time), |it| it.hand_off_time(time))
    }

    pub async fn connect(self) -> Result<Locks> {
        Ok(match self {
            Self::Tenure(builder) => builder.connect().await?.as_locks().clone(),
            Self::Redlock(builder) => builder.connect().await?.as_locks().clone(),
        })
    }

    pub fn connect_blocking(self) -> Result<blocking::Locks> {
        Ok(match self {
            Self::Tenure(builder) => blocking::Tenure::connect_with(builder)?.as_locks().clone(),
            Self::Redlock(builder) => blocking::Redlock::connect_with(builder)?.as_locks().clone(),
        })
    }

    fn change(
        self,
        one: impl FnOnce(Builder<Tenure>) -> Builder<Tenure>,
        several: impl FnOnce(Builder<Redlock>) -> Builder<Redlock>,
    ) -> Self {
        match self {
            Self::Tenure(builder) => Self::Tenure(one(builder)),
            Self::Redlock(builder) => Self::Redlock(several(builder)),
        }
    }
}
