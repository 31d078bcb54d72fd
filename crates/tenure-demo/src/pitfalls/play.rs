//! Playing a pitfall: first the mistake, then the same situation with Tenure.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tenure::ErrorKind;

use super::pitfall::{Act, Missing, Observed, Pitfall};
use super::scene::Stage;

/// How often a mistake is tried until it causes damage: some are a matter of luck. Tenure gets one
/// try.
const MISTAKES_MAX: u32 = 3;
/// How long an act may take: several times what it needs on a busy machine.
const ACT_MAX: Duration = Duration::from_secs(15);

/// The outcome of a pitfall.
#[derive(Debug)]
pub(crate) enum Outcome {
    Played {
        mistake: Observed,
        tenure: Observed,
    },
    /// A requirement is missing on this machine.
    Skipped(String),
}

/// # Errors
///
/// If the store cannot be used. A lock that could not be acquired is an outcome, not an error.
pub(crate) async fn play(pitfall: Pitfall, stage: Arc<Stage>) -> Result<Outcome> {
    let playing = try_play(&pitfall, &stage).await;
    playing.or_else(|error| match what_is_missing(&error) {
        Some(missing) => Ok(Outcome::Skipped(missing)),
        None => Err(error).with_context(|| format!("cannot play the pitfall `{}`", pitfall.name)),
    })
}

async fn try_play(pitfall: &Pitfall, stage: &Arc<Stage>) -> Result<Outcome> {
    let mistake = commit(pitfall, stage).await?;
    let tenure = observe(pitfall.tenure, stage, &format!("{}:tenure", pitfall.name)).await?;
    Ok(Outcome::Played { mistake, tenure })
}

async fn commit(pitfall: &Pitfall, stage: &Arc<Stage>) -> Result<Observed> {
    let mut tries = 1;
    loop {
        let act = format!("{}:mistake-{tries}", pitfall.name);
        let observed = observe(pitfall.mistake, stage, &act).await?;
        if observed.is_expected || tries >= MISTAKES_MAX {
            return Ok(observed);
        }
        tries += 1;
    }
}

async fn observe(act: Act, stage: &Arc<Stage>, name: &str) -> Result<Observed> {
    let acting = tokio::time::timeout(ACT_MAX, act(stage.scene(name)));
    let Ok(played) = acting.await else {
        let words = format!("it did not finish within {} s", ACT_MAX.as_secs());
        return Ok(Observed::when(false, words));
    };
    played.or_else(|error| {
        // Errors about a lock, such as busy or lost, are unexpected outcomes. All others are errors.
        if is_about_a_lock(&error) {
            Ok(Observed::when(false, format!("{error:#}")))
        } else {
            Err(error)
        }
    })
}

fn is_about_a_lock(error: &anyhow::Error) -> bool {
    use ErrorKind as Is;
    let is_other = |kind| {
        matches!(
            kind,
            Is::InvalidName
                | Is::InvalidSetting
                | Is::InvalidUrl
                | Is::NotALock
                | Is::Unavailable
                | Is::ReadOnly
                | Is::OutOfMemory
                | Is::NotReplicated
                | Is::Protocol
                | Is::Unsupported
                | Is::Denied
        )
    };
    our_kind(error).is_some_and(|kind| !is_other(kind))
}

/// The missing requirement, if that is why the pitfall could not be played.
fn what_is_missing(error: &anyhow::Error) -> Option<String> {
    let missing = error.downcast_ref::<Missing>();
    missing.map(ToString::to_string)
}

fn our_kind(error: &anyhow::Error) -> Option<ErrorKind> {
    let mut causes = error.chain();
    let ours = causes.find_map(|cause| cause.downcast_ref::<tenure::Error>());
    ours.map(tenure::Error::kind)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use anyhow::bail;

    use super::*;

    const HARMLESS: Act = |_| Box::pin(async { Ok(Observed::when(false, "nothing happened")) });
    const HARMFUL: Act = |_| Box::pin(async { Ok(Observed::when(true, "two holders")) });
    const BUSY: Act = |scene| {
        Box::pin(async move {
            let (client, name) = (scene.process("A").await?, scene.key("lock"));
            let _held = client.lock(&name).acquire().await?;
            let limit = std::time::Duration::from_millis(10);
            drop(client.lock(&name).wait(limit).acquire().await?);
            Ok(Observed::when(true, "granted"))
        })
    };

    async fn outcome(mistake: Act, tenure: Act) -> Result<Outcome> {
        let stage = Stage::open(None).await?;
        let name = "invented";
        let pitfall = Pitfall {
            name,
            mistake,
            tenure,
        };
        play(pitfall, stage).await
    }

    #[tokio::test]
    async fn a_mistake_that_causes_no_damage_is_reported() {
        let Outcome::Played { mistake, tenure } = outcome(HARMLESS, HARMFUL).await.unwrap() else {
            panic!("it was skipped");
        };
        assert_eq!(mistake, Observed::when(false, "nothing happened"));
        assert!(tenure.is_expected);
    }

    #[tokio::test]
    async fn a_mistake_may_need_several_tries() {
        static TRIES: AtomicU32 = AtomicU32::new(0);
        let lucky: Act = |_| {
            let tries = TRIES.fetch_add(1, Ordering::Relaxed) + 1;
            Box::pin(async move { Ok(Observed::when(tries == MISTAKES_MAX, "at last")) })
        };
        let Outcome::Played { mistake, .. } = outcome(lucky, HARMFUL).await.unwrap() else {
            panic!("it was skipped");
        };
        assert!(mistake.is_expected);
    }

    #[tokio::test]
    async fn a_busy_lock_is_an_outcome_and_tenure_gets_one_try() {
        let Outcome::Played { tenure, .. } = outcome(HARMFUL, BUSY).await.unwrap() else {
            panic!("it was skipped");
        };
        assert!(!tenure.is_expected);
        assert!(tenure.words.contains("was not free within"), "{tenure:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_act_that_does_not_end_times_out() {
        let endless: Act = |_| Box::pin(std::future::pending());
        let Outcome::Played { tenure, .. } = outcome(HARMFUL, endless).await.unwrap() else {
            panic!("it was skipped");
        };
        assert_eq!(
            tenure,
            Observed::when(false, "it did not finish within 15 s")
        );
    }

    #[tokio::test]
    async fn a_missing_requirement_skips_and_other_failures_are_errors() {
        let missing: Act = |_| Box::pin(async { Err(Missing("no server".to_owned()).into()) });
        let outcome_of = outcome(missing, HARMFUL).await.unwrap();
        assert!(matches!(outcome_of, Outcome::Skipped(reason) if reason == "no server"));
        let trouble: Act = |_| Box::pin(async { bail!("the disk is full") });
        let error = outcome(HARMFUL, trouble).await.unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "cannot play the pitfall `invented`: the disk is full"
        );
    }
}
