//! Counterexamples in words.

use crate::action::Action;
use crate::model::Ballots;
use crate::node::{Block, Fence};
use crate::state::{Phase, State};
use stateright::Model;

/// Says what happened, step by step. The model sorts its nodes after every step: here each keeps its
/// number from beginning to end.
pub fn tell<const N: usize, const A: usize>(
    model: &Ballots<N, A>,
    actions: &[Action],
) -> Vec<String> {
    let mut state = model.init_states().remove(0);
    let mut lines = Vec::new();
    for &action in actions {
        let mut order: [usize; N] = std::array::from_fn(|node| node);
        order.sort_by_key(|&node| state.sites[node]);
        let action = action.on_node(|sorted| order[sorted]);
        lines.push(sentence(model, &state, action));
        model.take(&mut state, action);
    }
    lines.extend(outcome(&state));
    lines
}

fn sentence<const N: usize, const A: usize>(
    model: &Ballots<N, A>,
    state: &State<N, A>,
    action: Action,
) -> String {
    let asked = |who: usize| fences(state.acquisitions[who].block);
    match action {
        Action::Send { who, .. } if model.rule().is_none() => {
            format!("{} asks all nodes", name(who))
        }
        Action::Send { who, block } => {
            format!("{} asks all nodes for {}", name(who), fences(block))
        }
        Action::Arrive { who, node, clock } => {
            let node = node + 1;
            format!(
                "node {node}, whose clock shows {clock}, does what {} asks",
                name(who)
            )
        }
        Action::Hear { who, nodes } => {
            let heard = (0..N).filter(|node| nodes & (1 << node) != 0);
            let heard: Vec<_> = heard.map(|node| node + 1).collect();
            format!("{} hears nodes {heard:?}", name(who))
        }
        Action::HandOff { who } => format!("{} hands its lease off with the next fence", name(who)),
        Action::Release { who, node } => {
            format!("a release of {} reaches node {}", name(who), node + 1)
        }
        Action::Repair { who, node } => {
            let (name, asked, node) = (name(who), asked(who), node + 1);
            format!("a repair of {name} with {asked} reaches node {node}")
        }
        Action::LoseLock { node } => format!("node {} loses its lock", node + 1),
        Action::LoseFence { node, left } => {
            let left = left.map_or("none".to_owned(), |fence| fence.to_string());
            format!("node {} crashes and comes back with fence {left}", node + 1)
        }
        Action::FenceExpires { node } => format!("the fence of node {} expires", node + 1),
        Action::Tick => format!("it is {}", state.now + 1),
    }
}

/// Who was given what, and where each node stands.
fn outcome<const N: usize, const A: usize>(state: &State<N, A>) -> Vec<String> {
    let mut lines = Vec::new();
    for (who, one) in state.acquisitions.iter().enumerate() {
        if let Phase::Won { handed_off } = one.phase {
            let (name, block) = (name(who), fences(one.block));
            let above = one.won_before.map_or(String::new(), |last| {
                format!(", and began when {last} had been won")
            });
            lines.push(format!(
                "= {name} won {block}, handed off {handed_off} times{above}"
            ));
        }
    }
    for (node, site) in state.sites.iter().enumerate() {
        let number = |fence: Fence| fence.to_string();
        let stored = site.node.fence.map_or("none".to_owned(), number);
        let lock = site
            .node
            .lock
            .map_or("free".to_owned(), |owner| format!("held by lease {owner}"));
        lines.push(format!(
            "= node {}: {lock}, stored fence {stored}",
            node + 1
        ));
    }
    lines
}

fn fences(block: Block) -> String {
    match block.count {
        1 => format!("fence {}", block.first),
        _ => format!("fences {} to {}", block.first, block.last()),
    }
}

fn name(who: usize) -> char {
    ['A', 'B', 'C', 'D'][who]
}
