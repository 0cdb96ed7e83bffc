"""How a report looks: one style sheet, inside the page, readable on a screen, on a phone and on paper."""

from __future__ import annotations

STYLE = """
:root { --ink: #1e293b; --soft: #64748b; --line: #e2e8f0; --paper: #ffffff; --ground: #f6f8fa; --accent: #0f766e; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
header { padding: 0 0.25rem; }
.eyebrow { margin: 0; color: var(--accent); font-size: 0.8rem; font-weight: 600; letter-spacing: 0.08em;
  text-transform: uppercase; }
h1 { margin: 0.2rem 0 0.6rem; font-size: 2.2rem; line-height: 1.15; letter-spacing: -0.02em; }
.lede { margin: 0 0 0.5rem; max-width: 46rem; font-size: 1.2rem; line-height: 1.45; }
.meta { margin: 0.4rem 0 0; color: var(--soft); font-size: 0.9rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: 0.8rem; margin: 1.6rem 0; }
.card { padding: 0.9rem 1rem; background: var(--paper); border: 1px solid var(--line); border-radius: 0.7rem; }
.card .label, .card .note { color: var(--soft); font-size: 0.82rem; line-height: 1.35; }
.card .value { margin: 0.15rem 0; font-size: 1.55rem; white-space: nowrap; font-weight: 650; letter-spacing: -0.01em;
  font-variant-numeric: tabular-nums; }
.card.good .value { color: var(--accent); }
.card.bad .value { color: #b91c1c; }
section { margin: 1rem 0; padding: 1.3rem 1.5rem 1.4rem; background: var(--paper); border: 1px solid var(--line);
  border-radius: 0.7rem; }
h2 { margin: 0 0 0.3rem; font-size: 1.25rem; letter-spacing: -0.01em; }
section p { margin: 0.3rem 0 0.8rem; max-width: 50rem; color: #475569; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif !important; }
svg { display: block; width: 100%; height: auto; margin: 0.4rem 0 0.8rem; }
table { width: 100%; margin: 0.6rem 0 1rem; border-collapse: collapse; font-size: 0.92rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: 0.38rem 0.6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child { text-align: left; font-weight: 500; white-space: normal; min-width: 5.5rem;
  overflow-wrap: break-word; }
thead th { color: var(--soft); font-size: 0.8rem; font-weight: 600; }
tbody tr:last-child th, tbody tr:last-child td { border-bottom: 0; }
td.best { color: var(--accent); font-weight: 650; }
ul { margin: 0 0 0.8rem; padding-left: 1.2rem; font-size: 0.9rem; }
@media (max-width: 40rem) { section { padding: 1rem; overflow-x: auto; } h1 { font-size: 1.7rem; } }
@media print { body { background: #fff; } section, .card { break-inside: avoid; } }
"""
