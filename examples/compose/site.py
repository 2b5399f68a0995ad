"""A news site with a new article every second; each article links to the five before it."""

import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        latest = int(time.time())
        path = self.path.strip("/")
        number = int(path) if path.isdecimal() else latest
        if path and not (path.isdecimal() and number <= latest):
            self.send_error(404)
            return
        title = f"Article {number}" if path else "The newest articles"
        links = [f'<li><a href="/{number - i}">{number - i}</a>' for i in range(bool(path), 6)]
        body = (
            f"<title>{title}</title><h1>{title}</h1><a href='/'>Home</a><ul>{''.join(links)}</ul>"
        )
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("", int(os.environ.get("PORT", "8000"))), Page).serve_forever()
