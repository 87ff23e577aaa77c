// Heat maps: the page's own drawing, read by pointer and by keyboard.
/** Makes the drawing of an element interactive; returns its file and its data. */
function kelvinHeat(element, figure, say) {
  'use strict';

  const canvas = element.querySelector('.canvas');
  const box = canvas.querySelector('.static');
  const drawing = box.querySelector('svg');
  const cells = Array.from(drawing.querySelectorAll('rect > title'), (title, index) => {
    const cell = { rect: title.parentElement, text: title.textContent, data: figure.cells[index] };
    title.remove(); // The browser would show it beside our tooltip.
    return cell;
  });
  const tip = document.createElement('div');
  tip.className = 'tip floating';
  tip.hidden = true;
  canvas.append(tip);
  box.tabIndex = 0;
  box.setAttribute('role', 'group');
  box.setAttribute('aria-label', drawing.getAttribute('aria-label') + '. Arrow keys read the cells.');

  /** Shows the text of a cell below it, or nothing. */
  function show(cell) {
    for (const one of cells) one.rect.classList.toggle('read', one === cell);
    tip.hidden = !cell;
    if (!cell) return;
    tip.textContent = cell.text;
    const [at, frame] = [cell.rect, canvas].map((one) => one.getBoundingClientRect());
    tip.style.left = Math.max(0, Math.min(at.right - frame.left, frame.width - tip.offsetWidth)) + 'px';
    tip.style.top = at.bottom - frame.top + 4 + 'px';
  }

  const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const within = (index, names) => Math.max(0, Math.min(names.length - 1, index));
  let cursor = null;
  box.addEventListener('keydown', (event) => {
    if (!(event.key in STEPS)) return;
    event.preventDefault();
    const [down, right] = STEPS[event.key];
    const [from, at] = cursor ?? [0, right > 0 ? -1 : 0];
    const [row, column] = cursor = [within(from + down, figure.rows), within(at + right, figure.columns)];
    const cell = cells.find(({ data }) => data[0] === row && data[1] === column);
    show(cell);
    say(cell ? cell.text : `${figure.row_label} ${figure.rows[row]} ${figure.column_label} ${figure.columns[column]}: no value`);
  });
  box.addEventListener('blur', () => { cursor = null; show(null); });
  drawing.addEventListener('pointerover', (event) => show(cells.find(({ rect }) => rect === event.target)));
  drawing.addEventListener('pointerleave', () => show(null));

  function svg() {
    const copy = drawing.cloneNode(true);
    const [, , width, height] = drawing.dataset.file.split(' ');
    for (const [name, value] of Object.entries({ viewBox: drawing.dataset.file, width, height })) copy.setAttribute(name, value);
    for (const read of copy.querySelectorAll('.read')) read.classList.remove('read');
    const style = document.createElementNS(copy.namespaceURI, 'style');
    style.textContent = document.getElementById('drawings').textContent;
    copy.prepend(style);
    return new XMLSerializer().serializeToString(copy);
  }

  const rows = () => [
    [...figure.axes, 'value', 'low', 'high', 'predicted'],
    ...figure.cells.map(([row, column, ...numbers]) => [figure.rows[row], figure.columns[column], ...numbers]),
  ];

  return { svg, rows };
}
