// Runs editors/vscode/extension.js without VS Code: prints what the view "Lanes" shows of an answer to `lanes`, which is
// on standard input, and the command that starts a session.
const Module = require('module');
const path = require('path');

const registered = {};
const vscode = {
  workspace: { getConfiguration: () => ({ get: () => '' }) },
  window: { registerWebviewViewProvider: (id, view) => (registered.view = view) },
  DebugAdapterExecutable: class {
    constructor(command, words) {
      Object.assign(this, { command, words });
    }
  },
  debug: {
    registerDebugAdapterDescriptorFactory: (type, factory) => (registered.factory = factory),
    registerDebugAdapterTrackerFactory: (type, factory) => (registered.tracker = factory),
    registerDebugConfigurationProvider: (type, provider) => (registered.provider = provider),
  },
};
const load = Module._load;
Module._load = (name, ...more) => (name === 'vscode' ? vscode : load(name, ...more));
const root = path.resolve(__dirname, '..', '..');
require(path.join(root, 'editors', 'vscode', 'extension.js')).activate({ subscriptions: [] });

const webview = { options: {}, html: '' };
const lanes = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const session = { customRequest: async () => lanes, workspaceFolder: undefined };
registered.tracker.createDebugAdapterTracker(session).onDidSendMessage({
  type: 'event',
  event: 'stopped',
  body: { threadId: 1 },
});
setImmediate(() => {
  registered.view.resolveWebviewView({ webview }); // the view is opened behind the stop
  const { command, words } = registered.factory.createDebugAdapterDescriptor(session);
  console.log(JSON.stringify({ command, words, html: webview.html }));
});
