// Starts `ladder debug --dap` for debug sessions, and shows the variables of a warp by lane.
const fs = require('fs');
const path = require('path');
const vscode = require('vscode');

/** The command of the settings, of the folder's virtual environment, or on the PATH. */
function ladderCommand(folder) {
  const chosen = vscode.workspace.getConfiguration('ladder').get('command');
  if (chosen) return chosen;
  const own = folder && path.join(folder.uri.fsPath, '.venv', 'bin', 'ladder');
  return own && fs.existsSync(own) ? own : 'ladder';
}

/** The view "Lanes": a row per lane, a column per variable; columns with one value come first, as a list. */
class LanesView {
  /** VS Code calls this when the view is first opened, which may be behind the stop that it shows. */
  resolveWebviewView(view) {
    this.view = view;
    view.webview.options = { enableScripts: false };
    this.show(this.content);
  }

  show(content) {
    this.content = content;
    if (!this.view) return;
    this.view.webview.html = `<!DOCTYPE html><html><head><meta charset="utf-8"><style>
      body { font-family: var(--vscode-editor-font-family); font-size: 12px; }
      table { border-collapse: collapse; }
      th, td { padding: 1px 8px; text-align: right; white-space: nowrap; }
      th { position: sticky; top: 0; background: var(--vscode-sideBar-background); }
      tr.focus { background: var(--vscode-list-activeSelectionBackground); }
      tr.away { opacity: 0.4; }
      dl { margin: 0 0 8px; } dt { float: left; clear: left; margin-right: 8px; font-weight: bold; }
    </style></head><body>${content || 'Stop in a kernel to see its lanes.'}</body></html>`;
  }

  async refresh(session, threadId) {
    const lanes = await session.customRequest('lanes', threadId ? { threadId } : {});
    const isSame = (one) => one.values.every((value) => value === one.values[0]);
    const same = lanes.variables.filter(isSame);
    const differing = lanes.variables.filter((one) => !isSame(one));
    const list = same.map((one) => `<dt>${escaped(one.name)}</dt><dd>${escaped(one.values[0])}</dd>`).join('');
    const head = differing.map((one) => `<th title="${escaped(one.type)}">${escaped(one.name)}</th>`).join('');
    const rows = [...Array(32).keys()].map((lane) => {
      const cells = differing.map((one) => `<td>${escaped(one.values[lane])}</td>`).join('');
      const isHere = (lanes.lanes >>> lane) & 1;
      const kind = lane === lanes.lane ? 'focus' : isHere ? '' : 'away';
      return `<tr class="${kind}"><th>${lane}</th>${cells}</tr>`;
    });
    const place = `block (${lanes.block}) warp ${lanes.warp}, instruction ${lanes.instruction}`;
    this.show(`<p>${place}</p><dl>${list}</dl><table><tr><th>lane</th>${head}</tr>${rows.join('')}</table>`);
  }
}

function escaped(text) {
  return String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');
}

function activate(context) {
  const view = new LanesView();
  context.subscriptions.push(
    vscode.window.registerWebviewViewProvider('ladder.lanes', view),
    vscode.debug.registerDebugAdapterDescriptorFactory('ladder', {
      createDebugAdapterDescriptor(session) {
        const folder = session.workspaceFolder;
        const options = folder ? { cwd: folder.uri.fsPath } : {};
        return new vscode.DebugAdapterExecutable(ladderCommand(folder), ['debug', '--dap'], options);
      },
    }),
    vscode.debug.registerDebugAdapterTrackerFactory('ladder', {
      createDebugAdapterTracker(session) {
        return {
          onDidSendMessage(message) {
            if (message.type === 'event' && message.event === 'stopped')
              view.refresh(session, message.body.threadId).catch(() => view.show(''));
            if (message.type === 'event' && message.event === 'terminated') view.show('');
          },
        };
      },
    }),
    vscode.debug.onDidChangeActiveStackItem?.((item) => {
      if (item?.session?.type === 'ladder' && item.threadId)
        view.refresh(item.session, item.threadId).catch(() => view.show(''));
    }) ?? { dispose() {} },
    vscode.debug.registerDebugConfigurationProvider('ladder', {
      resolveDebugConfiguration(folder, configuration) {
        if (configuration.type) return configuration;
        return { type: 'ladder', request: 'launch', name: 'Debug this file', target: '${file}', check: true };
      },
    }),
  );
}

module.exports = { activate, deactivate() {} };
