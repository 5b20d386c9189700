"""The style of every page: light and dark, without fonts or images from elsewhere."""

STYLE = """
.lgp{--fg:#1c1e21;--bg:#fff;--dim:#5b6470;--line:#d0d4d9;--link:#0b5cad;--wrong:#a8071a;
  --inserted:#8a5300;--inserted-bg:#fff6e6;--recovered:#18794e;--recovered-bg:#e9f9ee;
  --restored:#18794e;--restored-bg:#e9f9ee;
  --moved:#0b5cad;--moved-bg:#eaf3ff;--dropped:#c6262e;--dropped-bg:#ffefef;
  --converted:#7c4dbd;--converted-bg:#f5efff;--promoted:#00707a;--promoted-bg:#e5f7f8;
  --renamed:#46606f;--renamed-bg:#eef4f7;--corrected:#00707a;--corrected-bg:#e5f7f8;
  --damaged:#a8071a;--paused:#8a5300;--unreadable:#7c4dbd;--healthy:#18794e;
  color-scheme:light dark;font:14px/1.45 system-ui,sans-serif;color:var(--fg);
  background:var(--bg)}
@media(prefers-color-scheme:dark){.lgp{--fg:#e4e6ea;--bg:#16181c;--dim:#9aa3af;--line:#3b414a;
  --link:#7fb5f5;--wrong:#ff8a8a;
  --inserted:#f0b860;--inserted-bg:#33270f;--recovered:#63d297;--recovered-bg:#12301f;
  --restored:#63d297;--restored-bg:#12301f;
  --moved:#7fb5f5;--moved-bg:#14273d;--dropped:#ff8a8a;--dropped-bg:#3a1719;
  --converted:#c4a3f5;--converted-bg:#2a1f3d;--promoted:#5fd0da;--promoted-bg:#0c2f33;
  --renamed:#a5bccb;--renamed-bg:#1f2a31;--corrected:#5fd0da;--corrected-bg:#0c2f33;
  --damaged:#ff8a8a;--paused:#f0b860;--unreadable:#c4a3f5;--healthy:#63d297}}
div.lgp{padding:.3rem .6rem}
body.lgp{margin:1rem auto;max-width:90rem;padding:0 1rem}
.lgp h1,.lgp h2{font-size:1.3rem;overflow-wrap:anywhere}
.lgp a{color:var(--link)}
.lgp table{border-collapse:collapse;table-layout:auto}
.lgp table.facts{margin-bottom:1rem}
.lgp .facts th{text-align:left;font-weight:400;color:var(--dim);padding:.1rem 1rem .1rem 0;
  vertical-align:top;white-space:nowrap}
.lgp .facts td{overflow-wrap:anywhere}
.lgp .sides{width:100%;table-layout:fixed;border-spacing:.5rem .3rem;border-collapse:separate}
.lgp .sides th{text-align:left}
.lgp .sides td{vertical-align:top;padding:.3rem .6rem;overflow-wrap:anywhere;
  border:1px solid var(--line);border-left-width:.4rem;border-radius:.3rem}
.lgp .sides td.none{border:0}
.lgp .sides td:target{outline:2px solid var(--link)}
.lgp pre{margin:.2rem 0 0;white-space:pre-wrap;font:13px/1.4 ui-monospace,monospace}
.lgp summary{cursor:pointer;white-space:pre-wrap;font:13px/1.4 ui-monospace,monospace}
.lgp td details[open] summary span{display:none}
.lgp .stretch>summary{color:var(--dim);margin:.2rem .5rem;padding:.3rem .6rem;
  border:1px dashed var(--line);border-radius:.3rem}
.lgp .who,.lgp footer,.lgp .age{color:var(--dim)}
.lgp footer{margin:1.5rem 0;font-size:12px;overflow-wrap:anywhere}
.lgp .what{float:right;font-weight:600;margin-left:.6rem}
.lgp .wrong{color:var(--wrong);font-weight:600;margin-left:.6rem}
.lgp ul.legend,.lgp ul.jump{margin:.4rem 0;padding:0;display:flex;flex-wrap:wrap;gap:.3rem .5rem;
  list-style:none}
.lgp .legend li,.lgp .jump li,.lgp .badge{border:1px solid currentColor;border-radius:.3rem;
  padding:0 .4rem;font-size:12px;line-height:1.5}
.lgp .badge{font-weight:600;white-space:nowrap}
.lgp .jump::before{content:"Jump to:";color:var(--dim)}
.lgp .jump .wrong{margin:0}
.lgp ul.counts{padding:0;list-style:none;color:var(--dim)}
.lgp .counts li{margin:.2rem 0}
.lgp .jump a{color:inherit;text-decoration:none}
.lgp .index{width:100%}
.lgp .index th,.lgp .index td{text-align:left;vertical-align:top;padding:.35rem .8rem .35rem 0;
  border-bottom:1px solid var(--line);overflow-wrap:anywhere}
.lgp .index th,.lgp .index .age{white-space:nowrap;overflow-wrap:normal}
.lgp table,.lgp table th{color:inherit;background:none;font-size:inherit;margin:0}
.lgp table tbody tr:nth-child(n),.lgp table tbody tr:nth-child(n):hover{background:none}
.lgp .sides td,.lgp .sides th,.lgp .facts td,.lgp .facts th{text-align:left}
.lgp td pre,.lgp summary{padding:0;background:none;color:inherit;word-break:normal}
.lgp .stretch>summary{padding:.3rem .6rem;color:var(--dim)}
@media(max-width:50rem){.lgp .sides,.lgp .sides tbody,.lgp .sides tr,.lgp .sides td{display:block}
  .lgp .sides thead,.lgp .sides td.none,.lgp .sides td.same{display:none}
  .lgp .sides td{margin:.3rem 0}
  .lgp .index thead{display:none}
  .lgp .index,.lgp .index tbody,.lgp .index tr,.lgp .index td{display:block;border:0;padding:0}
  .lgp .index tr{border-bottom:1px solid var(--line);padding:.5rem 0}
  .lgp .index td[title]::before{content:attr(title) ": ";color:var(--dim)}}
"""

_KINDS = (
    "inserted", "recovered", "restored", "moved", "dropped", "converted", "promoted", "renamed",
    "corrected",
)  # fmt: skip
_STATUSES = ("damaged", "paused", "unreadable", "healthy")

STYLE += "".join(
    f".lgp .sides .{kind}{{border-color:var(--{kind});background:var(--{kind}-bg)}}"
    f".lgp .legend .{kind},.lgp .jump .{kind},.lgp .{kind}>.what{{color:var(--{kind})}}"
    for kind in _KINDS
)
STYLE += "".join(f".lgp .badge.{status}{{color:var(--{status})}}" for status in _STATUSES)
