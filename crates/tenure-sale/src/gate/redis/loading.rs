//! Loading an item onto its shelves, and removing it.

use tenure::Fence;
use tenure::redis::Command;

use super::keys::{answer, answer_field};
use super::shelves::{Shelf, Shelves};
use super::{NONE, RedisGate, failed, not_understood, optional, script, terms, words};
use crate::error::Result;
use crate::gate::load::{Ended, Load, Remembered};
use crate::item::ItemState;

/// Buyers and answers per call while loading: other clients need the server in between.
const LOADED_AT_ONCE: usize = 500;

impl RedisGate {
    /// In the order of the shelves: of two concurrent loads, the greater one succeeds.
    pub(in crate::gate) async fn begin_load(
        &self,
        item: &str,
        epoch: u64,
        fence: Fence,
        spread: u64,
    ) -> Result<bool> {
        let shelves = self.spreads.learn(item, spread);
        for shelf in shelves.all() {
            if !self.begin_at(shelf, epoch, fence).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn begin_at(&self, shelf: &Shelf, epoch: u64, fence: Fence) -> Result<bool> {
        let (item, keys) = (shelf.item.as_str(), shelf.keys.with_before());
        let arguments = [epoch, fence.get(), shelf.place.of].map(|number| number.to_string());
        let reply = self
            .script(item, &script::BEGIN_LOAD, &keys, &arguments)
            .await?;
        match words(&reply) {
            (Some("begun"), _) => Ok(true),
            (Some("refused"), _) => Ok(false),
            (Some("foreign"), Some(id)) => Err(crate::gate::checks::foreign_id(item, epoch, id)),
            _ => Err(not_understood(item, &reply)),
        }
    }

    /// In any order: a request needs its home shelf, and a rebuild all of them.
    pub(in crate::gate) async fn stop(&self, item: &str) -> Result<()> {
        for shelf in self.shelves(item).await?.all() {
            self.yes(item, &script::STOP, &[&shelf.keys.gate], NONE)
                .await?;
        }
        Ok(())
    }

    /// What the shelves of a load that has begun know of the epoch before.
    pub(in crate::gate) async fn ended(&self, item: &str) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        for shelf in self.shelves(item).await?.all() {
            let asking = Command::new("HGET").arg(&shelf.keys.gate).arg("ended");
            let reply = self.redis.run(asking).await;
            let reply = reply.map_err(|error| failed(item, error))?;
            let known = reply.as_str().and_then(|text| text.split_once(':'));
            let Some((epoch, entries)) = known else {
                continue;
            };
            if let (Ok(epoch), Ok(entries)) = (epoch.parse(), entries.parse()) {
                ended.push(Ended {
                    shelf: shelf.place.nth,
                    epoch,
                    entries,
                });
            }
        }
        Ok(ended)
    }

    pub(in crate::gate) async fn load_buyers(
        &self,
        item: &str,
        epoch: u64,
        fence: Fence,
        buyers: &[(String, u64)],
        answers: &[Remembered],
    ) -> Result<bool> {
        for shelf in self.shelves(item).await?.all() {
            let here = |buyer: &str| shelf.place.is_home_of(buyer);
            let buyers: Vec<_> = buyers.iter().filter(|(buyer, _)| here(buyer)).collect();
            let answers: Vec<_> = answers.iter().filter(|known| here(&known.buyer)).collect();
            for buyers in buyers.chunks(LOADED_AT_ONCE) {
                if !self.load_some(shelf, epoch, fence, buyers, &[]).await? {
                    return Ok(false);
                }
            }
            for answers in answers.chunks(LOADED_AT_ONCE) {
                if !self.load_some(shelf, epoch, fence, &[], answers).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    async fn load_some(
        &self,
        shelf: &Shelf,
        epoch: u64,
        fence: Fence,
        buyers: &[&(String, u64)],
        answers: &[&Remembered],
    ) -> Result<bool> {
        let head = [
            epoch.to_string(),
            fence.to_string(),
            buyers.len().to_string(),
        ];
        let mut arguments: Vec<Vec<u8>> = head.map(String::into_bytes).into();
        for (buyer, units) in buyers {
            arguments.extend([buyer.clone().into(), units.to_string().into()]);
        }
        for known in answers {
            arguments.push(answer_field(&known.buyer, &known.request));
            arguments.push(answer(&known.order, known.units).into());
        }
        let keys = [&shelf.keys.gate, &shelf.keys.buyers, &shelf.keys.answers];
        self.yes(&shelf.item, &script::LOAD_BUYERS, &keys, &arguments)
            .await
    }

    pub(in crate::gate) async fn finish_load(&self, item: &str, load: &Load) -> Result<bool> {
        for shelf in self.spreads.learn(item, load.spread).all() {
            if !self.finish_at(shelf, load).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn finish_at(&self, shelf: &Shelf, load: &Load) -> Result<bool> {
        let mut arguments = vec![
            load.epoch.to_string(),
            load.fence.to_string(),
            load.state.word().to_owned(),
            optional(load.left.map(|left| shelf.place.part(left))),
            load.change.to_string(),
        ];
        arguments.extend(terms(&load.terms));
        let keys = [&shelf.keys.gate, &shelf.keys.buyers, &shelf.keys.answers];
        self.yes(&shelf.item, &script::FINISH_LOAD, &keys, &arguments)
            .await
    }

    /// The first shelf is removed last: as long as it exists, the others can be found.
    pub(in crate::gate) async fn forget(&self, item: &str) -> Result<bool> {
        let shelves = self.shelves(item).await?;
        if shelves.is_spread() && !self.is_over(&shelves).await? {
            return Ok(false);
        }
        for shelf in shelves.all().iter().rev() {
            let keys = shelf.keys.with_before();
            if !self.yes(item, &script::FORGET, &keys, NONE).await? {
                return Ok(false);
            }
            self.readers.forget(&shelf.keys.orders);
        }
        self.spreads.forget(item);
        self.moves.forget(item);
        Ok(true)
    }

    /// Whether nothing is left to do on any shelf.
    async fn is_over(&self, shelves: &Shelves) -> Result<bool> {
        let looks = self.look(shelves).await?;
        Ok(looks.iter().flatten().all(|look| {
            let shelf = &look.shelf;
            shelf.state == Some(ItemState::Closed) && shelf.queued == 0 && shelf.dead == 0
        }))
    }
}
