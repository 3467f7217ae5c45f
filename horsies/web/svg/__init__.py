"""Pictures of the dashboard: graphs of workflows, timelines and small charts, as SVG text.

Every function here is pure: it is told what to draw and what time it is, and the same input gives the same text. The
text has classes instead of styles, no scripts, and no address but the relative links that a page asks for. The colours
are in `static/svg.css`.
"""
