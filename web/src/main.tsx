import './style/base.css';
import './style/frame.css';
import './style/parts.css';
import './style/views.css';
import './language.ts';
import { render } from 'preact';
import { App } from './app.tsx';
import { keepPresses } from './press.ts';
import { followLinks } from './router.ts';
import { enter } from './session.ts';

followLinks();
keepPresses();
render(<App />, document.querySelector('#app') as HTMLElement);
void enter();
