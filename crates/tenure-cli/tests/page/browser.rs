//! A browser, for one test at a time.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::driver::Driver;

/// Far longer than anything takes: ten times what a user would wait.
pub const LIMIT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What says whether these tests must run: `require`, `skip`, or nothing, and then they do if they can.
const WISH: &str = "TENURE_PAGE";

/// Two tests at once would starve each other, and the servers beside them.
static TURN: Mutex<()> = Mutex::new(());

/// A browser with one window.
pub struct Browser {
    driver: Arc<Driver>,
    /// Taken when it is first used: until then a test may start its servers.
    turn: OnceCell<MutexGuard<'static, ()>>,
}

impl Browser {
    /// None if no browser is installed and none is required.
    pub fn start() -> Option<Self> {
        let wish = std::env::var(WISH).unwrap_or_default();
        let exists = which("chromedriver") && which("chromium");
        if wish == "skip" || (!exists && wish != "require") {
            eprintln!("skipped: it needs chromium and chromedriver, and `make test-page` runs it");
            return None;
        }
        assert!(
            exists,
            "chromium and chromedriver are missing: sudo apt-get install chromium chromium-driver"
        );
        // A waiting test keeps it open.
        Some(Self {
            driver: Driver::shared(),
            turn: OnceCell::new(),
        })
    }

    /// Waits for its turn. Nothing of the test before is left then but what the browser keeps for
    /// another service.
    fn begin(&self) -> MutexGuard<'static, ()> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let size = json!({ "width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        let devtools = |command: &str, params: Value| json!({ "cmd": command, "params": params });
        for (path, body) in [
            ("/url", json!({ "url": "about:blank" })),
            (
                "/goog/cdp/execute",
                devtools("Emulation.setDeviceMetricsOverride", size),
            ),
            (
                "/goog/cdp/execute",
                devtools("Emulation.setEmulatedMedia", json!({ "features": [] })),
            ),
            ("/se/log", json!({ "type": "browser" })),
            ("/se/log", json!({ "type": "performance" })),
        ] {
            self.driver.post(path, &body).unwrap();
        }
        turn
    }

    pub fn goto(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// To the page before.
    pub fn back(&self) {
        self.post("/back", &json!({}));
    }

    /// As a window of that many pixels, one for one.
    pub fn size(&self, width: u32, height: u32) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// `light` or `dark`, as the system would say.
    pub fn prefer(&self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.devtools(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [feature] }),
        );
    }

    /// What a function of this body returns.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// What becomes of a promise that a function of this body returns.
    pub fn run_to_end(&self, script: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; (async () => {{ {script} }})().then(done, (error) => done(String(error)))"
        );
        self.post("/execute/async", &json!({ "script": script, "args": [] }))
    }

    /// The text of what a selector finds, nothing if it finds nothing or what it finds is not shown.
    pub fn shown(&self, selector: &str) -> String {
        let selector = json!(selector);
        let text = self.run(&format!(
            "const found = document.querySelector({selector}); return found?.checkVisibility() ? found.innerText : ''"
        ));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until a condition in the page's own words holds.
    #[track_caller]
    pub fn wait(&self, condition: &str) -> Duration {
        let begun = Instant::now();
        while self.run(&format!("return Boolean({condition})")) != json!(true) {
            let is_late = begun.elapsed() > LIMIT;
            assert!(
                !is_late,
                "not within {LIMIT:?}: {condition}\n{}",
                self.shown("body")
            );
            sleep(LOOK_EVERY);
        }
        begun.elapsed()
    }

    /// Waits until something that is shown contains a text.
    #[track_caller]
    pub fn wait_for_text(&self, selector: &str, text: &str) -> Duration {
        let (selector, text) = (json!(selector), json!(text));
        self.wait(&format!(
            "[...document.querySelectorAll({selector})].some((one) => one.checkVisibility() && one.innerText.includes({text}))"
        ))
    }

    /// Clicks as a person does: it must be there, be visible and not covered.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let begun = Instant::now();
        loop {
            let path = format!("/element/{}/click", self.find(selector));
            match self.driver.post(&path, &json!({})) {
                Ok(_) => return,
                // What a person sees may be another one a moment later.
                Err(refused) if refused.contains("stale") && begun.elapsed() < LIMIT => {}
                Err(refused) => panic!("{refused}"),
            }
        }
    }

    #[track_caller]
    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.post(&format!("/element/{element}/clear"), &json!({}));
        self.post(
            &format!("/element/{element}/value"),
            &json!({ "text": text }),
        );
    }

    /// Presses keys, wherever the focus is.
    pub fn press(&self, key: &str) {
        let keys = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        self.post(
            "/actions",
            &json!({ "actions": [{ "type": "key", "id": "keys", "actions": keys }] }),
        );
    }

    /// A picture of what is shown, as PNG.
    pub fn picture(&self) -> String {
        let taken = self.devtools("Page.captureScreenshot", &json!({ "format": "png" }));
        taken["data"].as_str().unwrap().to_owned()
    }

    /// What was written to the console since the last call, but for what `allowed` finds.
    #[track_caller]
    pub fn assert_quiet(&self, allowed: impl Fn(&str) -> bool) {
        let entries = self.post("/se/log", &json!({ "type": "browser" }));
        for entry in entries.as_array().unwrap() {
            let message = entry["message"].as_str().unwrap();
            let is_bad = ["SEVERE", "WARNING"].contains(&entry["level"].as_str().unwrap());
            assert!(!is_bad || allowed(message), "on the console: {entry}");
        }
    }

    /// What the browser's network did since the last call, as the events of its own protocol.
    pub fn network(&self) -> Vec<Value> {
        let entries = self.post("/se/log", &json!({ "type": "performance" }));
        let read = |entry: &Value| -> Value {
            let message = entry["message"].as_str().unwrap();
            serde_json::from_str::<Value>(message).unwrap()["message"].take()
        };
        entries.as_array().unwrap().iter().map(read).collect()
    }

    fn devtools(&self, command: &str, params: &Value) -> Value {
        self.post(
            "/goog/cdp/execute",
            &json!({ "cmd": command, "params": params }),
        )
    }

    #[track_caller]
    fn find(&self, selector: &str) -> String {
        let wanted = json!(selector);
        self.wait(&format!(
            "document.querySelector({wanted})?.checkVisibility()"
        ));
        let found = self.post(
            "/element",
            &json!({ "using": "css selector", "value": selector }),
        );
        let id = found.as_object().unwrap().values().next().unwrap();
        id.as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Value {
        self.turn.get_or_init(|| self.begin());
        let answer = self.driver.post(path, body);
        answer.unwrap_or_else(|refused| panic!("{refused}"))
    }
}

fn which(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}
