// The chart library is deflated in the page: inflated it would be most of it.
/** Unpacks and runs it, which defines `echarts`. */
async function kelvinLibrary() {
  'use strict';

  const packed = Uint8Array.from(atob(document.getElementById('library').textContent), (letter) => letter.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  const script = document.createElement('script');
  script.textContent = await new Response(plain).text();
  document.head.append(script);
}
